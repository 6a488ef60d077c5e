-- One row per week, deployment and batch size: what a larger batch gains and what it costs each user.
-- grain: week, deployment_id, batch_requests
select
    plan.week, plan.deployment_id, plan.batch_requests, plan.throughput_tokens_per_s, plan.tpot_s, plan.ttft_s,
    plan.rule_of_thumb_factor, plan.is_kv_ok, plan.is_slo_ok, plan.is_turning_point, plan.is_recommended, plan.is_today,
    plan.burst_miss_ratio, plan.burst_preempted_requests,
    dim_deployments.slo_tpot_p95_s as slo_s, dim_deployments.slo_ttft_p95_s,
    if(
        min(plan.is_kv_ok) over (partition by plan.week, plan.deployment_id), null,
        max(if(plan.is_kv_ok, plan.batch_requests, 0)) over (partition by plan.week, plan.deployment_id)
    ) as kv_limit_requests,
    plan.provenance
from plan_batch_curve as plan
left join dim_deployments on plan.deployment_id = dim_deployments.deployment_id
where plan.scenario_id = 'today'
order by plan.week, plan.deployment_id, plan.batch_requests
