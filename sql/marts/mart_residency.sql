-- One row per week, deployment, pace, phase and five minutes: KV residency of today's fleet against its capacity.
-- grain: week, deployment_id, pace, phase, window_started_at
with phases as (
    select
        week, deployment_id, pace, phase, window_started_at,
        residency_mean_bytes, residency_max_bytes, block_mean_bytes, resident_mean_requests, capacity_bytes,
        if(phase = 'tool_wait' and provenance = 'measured', 'modelled', provenance) as provenance
    from plan_residency
    where scenario_id = 'today'
),

-- Tool waits hold KV only under a policy that pins it: they are shown as modelled, and stand not against capacity.
sums as (
    select
        week, deployment_id, pace, '(all)' as phase, window_started_at,
        sum(residency_mean_bytes order by phase) as residency_mean_bytes,
        cast(null as double) as residency_max_bytes,
        sum(block_mean_bytes order by phase) as block_mean_bytes,
        sum(resident_mean_requests order by phase) as resident_mean_requests,
        max(capacity_bytes) as capacity_bytes,
        arg_max(provenance, list_position(['measured', 'calibrated', 'modelled', 'assumed'], provenance)) as provenance
    from phases
    where phase <> 'tool_wait'
    group by week, deployment_id, pace, window_started_at
),

windows as (
    select * from phases
    union all
    select * from sums
)

select
    week, deployment_id, window_started_at, phase, pace,
    residency_mean_bytes, residency_max_bytes, block_mean_bytes, resident_mean_requests, capacity_bytes,
    coalesce(greatest(residency_mean_bytes, residency_max_bytes) > capacity_bytes, false) as is_over_capacity,
    provenance
from windows
order by week, deployment_id, pace, phase, window_started_at
