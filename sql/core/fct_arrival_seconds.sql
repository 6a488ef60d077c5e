-- One row per second and deployment with an arrival: what every arrival figure is counted from.
-- grain: week, deployment_id, second_at
-- incremental: week
select
    week,
    coalesce(deployment_id, '(none)') as deployment_id,
    date_trunc('second', arrived_at) as second_at,
    count(*) as requests,
    count(*) filter (where served_by <> 'gateway_cache') as backend_requests,
    min(arrived_at) as first_arrived_at,
    max(arrived_at) as last_arrived_at
from fct_requests
group by all
