-- One row per week, deployment and mover: what changed KV·time and GPUs since the previous week, and by how much.
-- grain: week, deployment_id, mover
-- Parts add up to the change; the residual is what the six movers leave over.
select
    plan.week, plan.deployment_id, plan.mover, plan.previous_week,
    plan.previous_kv_time_byte_s, plan.kv_time_byte_s, plan.kv_time_part_byte_s,
    plan.kv_time_part_byte_s / nullif(plan.previous_kv_time_byte_s, 0) as kv_time_part_factor,
    plan.previous_demand_gpus, plan.demand_gpus, plan.demand_part_gpus,
    plan.demand_part_gpus / nullif(plan.previous_demand_gpus, 0) as demand_part_factor,
    plan.provenance
from plan_changes as plan
inner join mart_coverage on plan.week = mart_coverage.week and plan.previous_week = mart_coverage.previous_week
where plan.scenario_id = 'today'
order by plan.week, plan.deployment_id, plan.mover
