-- One row per week, deployment, tenant and phase, '(all)' standing for all of them: who holds KV, and for how long.
-- grain: week, deployment_id, tenant, phase
-- What tool waits would hold if contexts were pinned stands beside the phases and is no part of their sum.
with parts as (
    select
        week, deployment_id, coalesce(tenant, '(none)') as tenant,
        if(phase = 'tool_wait' and provenance = 'measured', 'modelled', provenance) as provenance,
        phase = 'prefill' as is_prefill,
        unnest(case when phase = 'tool_wait' then [phase] else [phase, '(all)'] end) as phase,
        attempts_requests, unknown_requests,
        cast(kv_time_byte_s as decimal(38, 3)) as kv_time_byte_s,
        cast(kv_block_time_byte_s as decimal(38, 3)) as kv_block_time_byte_s,
        cast(kv_shared_time_byte_s as decimal(38, 3)) as kv_shared_time_byte_s
    from plan_kv_time
    where scenario_id = 'today'
),

sums as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        coalesce(tenant, '(all)') as tenant,
        phase,
        cast(sum(attempts_requests) as bigint) as parts_requests,
        cast(sum(attempts_requests) filter (where is_prefill) as bigint) as prefill_requests,
        cast(sum(unknown_requests) as bigint) as parts_unknown_requests,
        cast(sum(unknown_requests) filter (where is_prefill) as bigint) as prefill_unknown_requests,
        cast(sum(kv_time_byte_s) as double) as kv_time_byte_s,
        cast(sum(kv_block_time_byte_s) as double) as kv_block_time_byte_s,
        cast(sum(kv_shared_time_byte_s) as double) as kv_shared_time_byte_s,
        arg_max(provenance, list_position(['measured', 'calibrated', 'modelled', 'assumed'], provenance)) as provenance
    from parts
    group by grouping sets ((week, deployment_id, tenant, phase), (week, deployment_id, phase), (week, phase))
),

counted as (
    select
        *,
        case when phase = '(all)' then prefill_requests else parts_requests end as attempts_requests,
        case when phase = '(all)' then prefill_unknown_requests else parts_unknown_requests end as unknown_requests
    from sums
)

select
    part.week, part.deployment_id, part.tenant, part.phase, part.attempts_requests, part.unknown_requests,
    part.kv_time_byte_s,
    part.kv_time_byte_s / nullif(part.attempts_requests, 0) as kv_time_mean_byte_s,
    part.kv_block_time_byte_s, part.kv_shared_time_byte_s,
    case
        when part.phase <> 'tool_wait' then coalesce(part.kv_time_byte_s / nullif(whole.kv_time_byte_s, 0), 0)
    end as share_ratio,
    part.provenance
from counted as part
inner join counted as whole
    on
        part.week = whole.week and part.deployment_id = whole.deployment_id
        and whole.tenant = '(all)' and whole.phase = '(all)'
order by part.week, part.deployment_id, part.tenant, part.phase
