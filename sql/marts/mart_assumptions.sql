-- One row per week, deployment and input of the plan that was not measured in the logs: value, unit, trust, source.
-- grain: week, deployment_id, name
with planned as (
    select distinct week, deployment_id from plan_replicas where scenario_id = 'today'
),

every_row as (
    select week, deployment_id, name, value_text, unit, provenance, source_text
    from plan_assumptions
    where scenario_id = 'today'
    union all
    select
        planned.week, planned.deployment_id, dim_memory.name,
        format('{:,}', dim_memory.value_bytes) as value_text,
        'bytes' as unit, dim_memory.provenance, dim_memory.source_text
    from planned
    inner join dim_memory on planned.deployment_id = dim_memory.deployment_id
    left join plan_assumptions as plan
        on
            planned.week = plan.week and planned.deployment_id = plan.deployment_id and dim_memory.name = plan.name
            and plan.scenario_id = 'today'
    where plan.name is null
    union all
    select
        mart_coverage.week, '(all)' as deployment_id,
        dim_settings.name, dim_settings.value_text, dim_settings.unit, dim_settings.provenance, dim_settings.source_text
    from mart_coverage
    cross join dim_settings
)

select week, deployment_id, name, value_text, unit, provenance, source_text
from every_row
order by week, deployment_id, name
