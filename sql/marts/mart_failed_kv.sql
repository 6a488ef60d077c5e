-- One row per week and deployment: KV·time spent on attempts that failed.
-- grain: week, deployment_id
with parts as (
    select
        week, deployment_id, phase, is_failed, attempts_requests,
        cast(kv_time_byte_s as decimal(38, 3)) as kv_time_byte_s
    from plan_kv_time
    where scenario_id = 'today' and phase <> 'tool_wait'
),

sums as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        cast(coalesce(sum(attempts_requests) filter (where phase = 'prefill'), 0) as bigint) as attempts_requests,
        cast(coalesce(sum(attempts_requests) filter (where phase = 'prefill' and is_failed), 0) as bigint)
            as failed_attempts_requests,
        cast(sum(kv_time_byte_s) as double) as kv_time_byte_s,
        cast(coalesce(sum(kv_time_byte_s) filter (where is_failed), 0) as double) as failed_kv_time_byte_s
    from parts
    group by grouping sets ((week, deployment_id), (week))
)

select
    week, deployment_id, attempts_requests, failed_attempts_requests, kv_time_byte_s, failed_kv_time_byte_s,
    coalesce(failed_kv_time_byte_s / nullif(kv_time_byte_s, 0), 0) as failed_share_ratio
from sums
order by week, deployment_id
