-- One row per planned deployment that has no decision, or more than one: none may exist.
-- grain: week, deployment_id
with planned as (
    select distinct week, deployment_id from plan_replicas where scenario_id = 'today'
),

decided as (
    select week, deployment_id, count(*) as decisions from mart_decision group by week, deployment_id
)

select planned.week, planned.deployment_id, coalesce(decided.decisions, 0) as decisions
from planned
left join decided on planned.week = decided.week and planned.deployment_id = decided.deployment_id
where decided.decisions is distinct from 1
