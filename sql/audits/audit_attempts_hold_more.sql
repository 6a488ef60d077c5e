-- One row per deployment whose attempts hold less KV·time than its requests alone, or parts that miss: none may exist.
-- grain: what, week, deployment_id
with attempts as (
    select week, deployment_id, sum(kv_time_byte_s) as kv_time_byte_s, sum(attempts_requests) as attempts_requests
    from plan_kv_time
    where scenario_id = 'today' and phase <> 'tool_wait'
    group by all
),

requests as (
    select week, deployment_id, sum(kv_time_byte_s) as kv_time_byte_s
    from plan_kv_time
    where scenario_id = 'today' and phase <> 'tool_wait' and not is_failed
    group by all
),

printed as (
    select week, deployment_id, kv_time_byte_s from mart_kv_time where tenant = '(all)' and phase = '(all)'
)

select
    'requests' as what, attempts.week, attempts.deployment_id, attempts.kv_time_byte_s,
    requests.kv_time_byte_s as part_byte_s
from attempts
inner join requests on attempts.week = requests.week and attempts.deployment_id = requests.deployment_id
where attempts.kv_time_byte_s < requests.kv_time_byte_s * (1 - 1e-9)
union all
select
    'mart_kv_time' as what, attempts.week, attempts.deployment_id, attempts.kv_time_byte_s,
    printed.kv_time_byte_s as part_byte_s
from attempts
inner join printed on attempts.week = printed.week and attempts.deployment_id = printed.deployment_id
where abs(attempts.kv_time_byte_s - printed.kv_time_byte_s) > 1e-6 * greatest(attempts.kv_time_byte_s, 1)
union all
select 'mart_failed_kv' as what, week, deployment_id, kv_time_byte_s, failed_kv_time_byte_s
from mart_failed_kv
where failed_kv_time_byte_s < 0 or failed_kv_time_byte_s > kv_time_byte_s * (1 + 1e-9)
