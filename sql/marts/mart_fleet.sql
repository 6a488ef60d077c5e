-- One row per week and GPU type, '(all)' standing for all of them: GPUs and cost of the planned deployments together.
-- grain: week, gpu_id
with decided as (
    select decision.*, coalesce(deployments.gpu_id, '(none)') as gpu_id
    from mart_decision as decision
    left join dim_deployments as deployments on decision.deployment_id = deployments.deployment_id
),

sums as (
    select
        week,
        coalesce(gpu_id, '(all)') as gpu_id,
        count(*) as deployments,
        cast(sum(now_gpus) as bigint) as now_gpus,
        cast(sum(needed_gpus) as bigint) as needed_gpus,
        if(count(previous_needed_gpus) = count(*), cast(sum(previous_needed_gpus) as bigint), null)
            as previous_needed_gpus,
        if(count(now_cost_usd_per_hour) = count(*), sum(now_cost_usd_per_hour), null) as now_cost_usd_per_hour,
        if(count(cost_usd_per_hour) = count(*), sum(cost_usd_per_hour), null) as cost_usd_per_hour,
        bool_and(is_slo_reachable) as is_slo_reachable
    from decided
    group by grouping sets ((week, gpu_id), (week))
)

select
    week, gpu_id, deployments, now_gpus, needed_gpus, needed_gpus - now_gpus as short_gpus, previous_needed_gpus,
    now_cost_usd_per_hour, cost_usd_per_hour, cost_usd_per_hour - now_cost_usd_per_hour as cost_change_usd_per_hour,
    is_slo_reachable
from sums
order by week, gpu_id
