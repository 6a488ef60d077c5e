-- One row per week and deployment with a plan: the demand that binds, and how the count of GPUs comes about, in words.
-- grain: week, deployment_id
with printed as (
    select
        *,
        needed_replicas - replicas_replicas as spare_replicas,
        list_transform(
            [residency_peak_bytes / 1073741824, kv_capacity_bytes / 1073741824, compute_gpu_s_per_s, demand_replicas],
            lambda x: figure_text(x)
        ) as figures
    from plan_replicas
    where scenario_id = 'today' and is_binding
),

worded as (
    select
        plan.*,
        case plan.demand
            when 'kv'
                then
                    format(
                        'KV memory (peak {} GiB × {:g} headroom ÷ {} GiB a replica = {})',
                        plan.figures[1], 1 + plan.headroom_ratio, plan.figures[2], plan.figures[4]
                    )
            when 'compute'
                then
                    format(
                        'compute ({} GPUs busy at the peak × {:g} headroom ÷ {} a replica = {})',
                        plan.figures[3], 1 + plan.headroom_ratio, deployments.gpus_per_replica_gpus, plan.figures[4]
                    )
            else format(
                'latency (p95 of {:g} s to the first token and {:g} ms a token)',
                deployments.slo_ttft_p95_s, 1000 * deployments.slo_tpot_p95_s
            )
        end as demand_text,
        plan.needed_gpus > plan.needed_replicas * deployments.gpus_per_replica_gpus as is_whole_node
    from printed as plan
    left join dim_deployments as deployments on plan.deployment_id = deployments.deployment_id
)

select
    week, deployment_id, demand as binding_demand,
    case
        when replicas_replicas > 0
            then
                regexp_replace(
                    format(
                        '{} replicas{} for {}',
                        replicas_replicas, if(replicas_replicas = 1, ' (the least there can be)', ''), demand_text
                    )
                    || if(spare_replicas > 0, format(' + {} spare = {} replicas', spare_replicas, needed_replicas), '')
                    || format(' = {} GPUs', needed_gpus) || if(is_whole_node, ' in whole nodes', ''),
                    '(^|[^0-9.,])1 (replica|GPU)s', '\11 \2', 'g'
                )
        else 'nothing to size by: what runs today is kept'
    end as binding_text
from worded
order by week, deployment_id
