-- One row per week and deployment with a plan: what binds, and how far to trust the count, in words.
-- grain: week, deployment_id
select
    plan.week, plan.deployment_id,
    plan.demand as binding_demand,
    case plan.demand
        when 'kv'
            then
                format(
                    'KV binds: {:.1f} GiB at the peak, {:.1f} GiB a replica, {:.1f} replicas with {:.0f} % headroom',
                    plan.residency_peak_bytes / 1073741824, plan.kv_capacity_bytes / 1073741824,
                    plan.demand_replicas, 100 * plan.headroom_ratio
                )
        when 'compute'
            then
                format(
                    'compute binds: {:.1f} GPUs busy at the peak, {:.1f} replicas with {:.0f} % headroom',
                    plan.compute_gpu_s_per_s, plan.demand_replicas, 100 * plan.headroom_ratio
                )
        else format(
            'the latency objective binds: {:.1f} replicas for a p95 of {:g} s to the first token and {:g} ms per token',
            plan.demand_replicas, dim_deployments.slo_ttft_p95_s, 1000 * dim_deployments.slo_tpot_p95_s
        )
    end as binding_text,
    case
        when plan.low_gpus is not null then format('{} to {} GPUs at 90 %', plan.low_gpus, plan.high_gpus)
        when mart_coverage.covered_s < 432000
            then format('no interval ({}, 5 days are needed)', mart_coverage.coverage_text)
        else 'no interval'
    end
    || ', ' || plan.provenance
    || case when plan.is_censored then ', censored by today''s fleet' else '' end as confidence_text
from plan_replicas as plan
left join dim_deployments on plan.deployment_id = dim_deployments.deployment_id
left join mart_coverage on plan.week = mart_coverage.week
where plan.scenario_id = 'today' and plan.is_binding
order by plan.week, plan.deployment_id
