-- One row per KV·time of plan_kv_attribution that its parts do not make up, or that plan_kv_time has not: none.
-- grain: week, deployment_id, scenario_id, what
with planned as (
    select
        week, deployment_id, scenario_id,
        coalesce(sum(kv_time_byte_s) filter (where phase <> 'tool_wait'), 0) as held_byte_s,
        coalesce(sum(kv_time_byte_s) filter (where phase = 'tool_wait'), 0) as waits_byte_s
    from plan_kv_time
    group by all
),

whole as (
    select
        week, deployment_id, scenario_id,
        sum(kv_time_byte_s) filter (where name = 'prompt') as prompt_byte_s,
        sum(kv_time_byte_s) filter (where name = 'output') as output_byte_s,
        sum(kv_time_byte_s) filter (where name = 'tool_wait') as waits_byte_s
    from plan_kv_attribution
    where dimension = 'part'
    group by all
),

sums as (
    select
        week, deployment_id, scenario_id, dimension,
        sum(prompt_kv_time_byte_s) as prompt_byte_s,
        sum(output_kv_time_byte_s) as output_byte_s,
        coalesce(sum(tool_wait_kv_time_byte_s), 0) as waits_byte_s,
        sum(kv_time_byte_s) as held_byte_s
    from plan_kv_attribution
    where dimension in ('length', 'tenant', 'model')
    group by all
)

select
    whole.week, whole.deployment_id, whole.scenario_id, 'part' as what,
    whole.prompt_byte_s + whole.output_byte_s as found_byte_s, planned.held_byte_s as expected_byte_s
from whole
inner join planned
    on
        whole.week = planned.week and whole.deployment_id = planned.deployment_id
        and whole.scenario_id = planned.scenario_id
where
    abs(found_byte_s - expected_byte_s) > 1e-9 * greatest(expected_byte_s, 1e6)
    or abs(whole.waits_byte_s - planned.waits_byte_s) > 1e-9 * greatest(planned.waits_byte_s, 1e6)
union all
select
    whole.week, whole.deployment_id, whole.scenario_id, sums.dimension as what,
    sums.held_byte_s as found_byte_s, whole.prompt_byte_s + whole.output_byte_s as expected_byte_s
from sums
inner join whole
    on sums.week = whole.week and sums.deployment_id = whole.deployment_id and sums.scenario_id = whole.scenario_id
where
    abs(found_byte_s - expected_byte_s) > 1e-9 * greatest(expected_byte_s, 1e6)
    or abs(sums.prompt_byte_s - whole.prompt_byte_s) > 1e-9 * greatest(expected_byte_s, 1e6)
    or abs(sums.output_byte_s - whole.output_byte_s) > 1e-9 * greatest(expected_byte_s, 1e6)
    or sums.waits_byte_s > whole.waits_byte_s + 1e-9 * greatest(whole.waits_byte_s, 1e6)
