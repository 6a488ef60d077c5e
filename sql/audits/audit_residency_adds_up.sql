-- One row per five minutes of mart_residency that its phases do not make up, or wrongly set against capacity: none.
-- grain: week, deployment_id, pace, window_started_at, what
with phases as (
    select
        week, deployment_id, pace, window_started_at,
        sum(residency_mean_bytes) as mean_bytes, sum(block_mean_bytes) as block_bytes
    from plan_residency
    where scenario_id = 'today' and phase <> 'tool_wait'
    group by all
)

select
    phases.week, phases.deployment_id, phases.pace, phases.window_started_at, 'sum of prefill and decode' as what,
    whole.residency_mean_bytes as found, phases.mean_bytes as expected
from phases
left join mart_residency as whole
    on
        phases.week = whole.week and phases.deployment_id = whole.deployment_id and phases.pace = whole.pace
        and phases.window_started_at = whole.window_started_at and whole.phase = '(all)'
where
    not coalesce(abs(whole.residency_mean_bytes - phases.mean_bytes) <= 1e-9 * phases.mean_bytes, false)
    or abs(whole.block_mean_bytes - phases.block_bytes) > 1e-9 * phases.block_bytes
union all
select
    week, deployment_id, pace, window_started_at, phase || ' against capacity' as what,
    coalesce(residency_max_bytes, residency_mean_bytes) as found, capacity_bytes as expected
from mart_residency
where is_over_capacity <> coalesce(coalesce(residency_max_bytes, residency_mean_bytes) > capacity_bytes, false)
