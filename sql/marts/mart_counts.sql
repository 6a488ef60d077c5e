-- One row per week and deployment, '(all)' and '(none)' too: from chat requests to the attempts the plan is made from.
-- grain: week, deployment_id
with requests as (
    select
        week,
        if(grouping(deployment_id) = 1, '(all)', coalesce(deployment_id, '(none)')) as deployment_id,
        count(*) as requests,
        count(*) filter (where served_by = 'gateway_cache') as cache_requests,
        count(*) filter (where not is_backend and served_by <> 'gateway_cache') as turned_away_requests,
        count(*) filter (where is_backend) as backend_requests,
        count(*) filter (where is_failed and served_by <> 'gateway_cache') as failed_requests
    from fct_requests
    group by grouping sets ((week, deployment_id), (week))
),

attempts as (
    select
        week,
        if(grouping(deployment_id) = 1, '(all)', coalesce(deployment_id, '(none)')) as deployment_id,
        count(*) as attempts_requests
    from fct_attempts
    group by grouping sets ((week, deployment_id), (week))
)

select
    requests.week, requests.deployment_id, requests.requests, requests.cache_requests, requests.turned_away_requests,
    requests.backend_requests, coalesce(attempts.attempts_requests, 0) as attempts_requests,
    held.attempts_requests as usable_requests, held.unknown_requests, requests.failed_requests
from requests
left join attempts on requests.week = attempts.week and requests.deployment_id = attempts.deployment_id
left join mart_kv_time as held
    on
        requests.week = held.week and requests.deployment_id = held.deployment_id
        and held.tenant = '(all)' and held.phase = '(all)'
order by requests.week, requests.deployment_id
