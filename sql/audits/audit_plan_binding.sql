-- One row per plan without exactly one binding demand, or whose counts contradict each other: none may exist.
-- grain: week, deployment_id, scenario_id
select
    week, deployment_id, scenario_id,
    count(*) filter (where is_binding) as binding_rows,
    max(demand_replicas) as largest_replicas,
    max(demand_replicas) filter (where is_binding) as binding_replicas,
    max(low_gpus) as low_gpus,
    max(high_gpus) as high_gpus
from plan_replicas
group by week, deployment_id, scenario_id
having
    count(*) filter (where is_binding) <> 1
    or max(replicas_replicas) > max(replicas_replicas) filter (where is_binding)
    or max(replicas_replicas) > max(needed_replicas)
    or max(low_gpus) > max(high_gpus)
    or min(needed_gpus) < 0
