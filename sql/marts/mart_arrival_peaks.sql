-- One row per week, deployment and step: the busiest hour minute by minute, and the busiest minute second by second.
-- grain: week, deployment_id, window_s, window_started_at
-- Requests that the gateway's cache answered are not in it.
with seconds as (
    select week, deployment_id, second_at, backend_requests as requests
    from fct_arrival_seconds
    where backend_requests > 0 and deployment_id <> '(none)'
),

spans as (
    select
        week, deployment_id, 60 as window_s, interval 1 minute as step, interval 59 minute as reach,
        time_bucket(interval 1 hour, second_at) as span_at, sum(requests) as requests
    from seconds
    group by all
    union all
    select
        week, deployment_id, 1 as window_s, interval 1 second as step, interval 59 second as reach,
        time_bucket(interval 1 minute, second_at) as span_at, sum(requests) as requests
    from seconds
    group by all
),

grid as (
    select
        week, deployment_id, window_s, step,
        unnest(generate_series(span_at, span_at + reach, step)) as window_started_at
    from spans
    qualify row_number() over (partition by week, deployment_id, window_s order by requests desc, span_at asc) = 1
)

select
    grid.week, grid.deployment_id, grid.window_s, grid.window_started_at,
    cast(coalesce(sum(seconds.requests), 0) as bigint) as requests
from grid
left join seconds
    on
        grid.week = seconds.week and grid.deployment_id = seconds.deployment_id
        and grid.window_started_at <= seconds.second_at and grid.window_started_at + grid.step > seconds.second_at
group by all
order by grid.week, grid.deployment_id, grid.window_s, grid.window_started_at
