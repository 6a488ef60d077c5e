-- One row per deployment and five minutes in which an attempt starts or ends: how the number in flight changes.
-- grain: deployment_id, window_started_at
with events as (
    select deployment_id, arrived_at as event_at, 1 as change_requests from fct_attempts where ended_at is not null
    union all
    select deployment_id, ended_at as event_at, -1 as change_requests from fct_attempts where ended_at is not null
),

changes as (
    select
        coalesce(deployment_id, '(none)') as deployment_id,
        time_bucket(interval '5 minutes', event_at) as window_started_at,
        sum(change_requests) as change_requests,
        sum(change_requests * (300000000 - epoch_us(event_at) % 300000000)) as change_us
    from events
    group by all
),

totals as (
    select
        coalesce(deployment_id, '(all)') as deployment_id,
        window_started_at,
        sum(change_requests) as change_requests,
        sum(change_us) as change_us
    from changes
    group by grouping sets ((deployment_id, window_started_at), (window_started_at))
)

select
    deployment_id, window_started_at,
    cast(sum(change_requests) over earlier - change_requests as bigint) as started_requests,
    cast(sum(change_requests) over earlier as bigint) as left_requests,
    cast(sum(change_requests) over earlier - change_requests as bigint) + change_us / 3e8 as concurrency_mean_requests
from totals
window earlier as (partition by deployment_id order by window_started_at)
order by deployment_id, window_started_at
