-- One row per week, deployment and input of the plan that was not measured in the logs: value, unit, trust, source.
-- grain: week, deployment_id, name
with planned as (
    select distinct week, deployment_id from plan_replicas where scenario_id = 'today'
),

memory as (
    select
        planned.week, planned.deployment_id,
        unnest(['gpu_memory_bytes', 'weights_bytes', 'activation_bytes', 'non_torch_bytes', 'kv_capacity_bytes'])
            as name,
        unnest([
            dim.gpu_memory_bytes, dim.weights_bytes, dim.activation_bytes, dim.non_torch_bytes, dim.kv_capacity_bytes
        ]) as value_bytes,
        dim.memory_provenance as provenance
    from planned
    inner join dim_deployments as dim on planned.deployment_id = dim.deployment_id
),

every_row as (
    select week, deployment_id, name, value_text, unit, provenance, source_text
    from plan_assumptions
    where scenario_id = 'today'
    union all
    select
        memory.week, memory.deployment_id, memory.name,
        format('{:,}', memory.value_bytes) as value_text,
        'bytes' as unit, memory.provenance,
        'memory account of the deployment' as source_text
    from memory
    left join plan_assumptions as plan
        on
            memory.week = plan.week and memory.deployment_id = plan.deployment_id and memory.name = plan.name
            and plan.scenario_id = 'today'
    where memory.value_bytes is not null and plan.name is null
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
