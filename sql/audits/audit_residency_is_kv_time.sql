-- One row per week, deployment and phase whose residency over time is not rate × KV·time: none may exist.
-- grain: week, deployment_id, scenario_id, phase
-- Little's law in bytes. The residency comes from a sweep over events, the KV·time from each request's closed form;
-- what attempts carried into the week hold in it and what others hold after it is counted on both sides alike.
with swept as (
    select week, deployment_id, scenario_id, phase, 300 * sum(residency_mean_bytes) as residency_byte_s
    from plan_residency
    where pace = 'observed'
    group by all
),

closed as (
    select week, deployment_id, scenario_id, phase, sum(kv_time_inside_byte_s) as kv_time_byte_s
    from plan_kv_time
    group by all
    having count(kv_time_inside_byte_s) = count(*)
)

select swept.week, swept.deployment_id, swept.scenario_id, swept.phase, swept.residency_byte_s, closed.kv_time_byte_s
from swept
inner join closed
    on
        swept.week = closed.week and swept.deployment_id = closed.deployment_id
        and swept.scenario_id = closed.scenario_id and swept.phase = closed.phase
where abs(swept.residency_byte_s - closed.kv_time_byte_s) > 1e-6 * greatest(closed.kv_time_byte_s, 1e6)
