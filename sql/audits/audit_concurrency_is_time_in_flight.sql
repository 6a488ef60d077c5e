-- One row per deployment whose attempts in flight are not those of fct_attempts, or get lost between windows: none.
-- grain: deployment_id, what
-- Mean in flight × time, over windows and the quiet spans between them, is the time that attempts are in flight.
with windows as (
    select
        *,
        lead(started_requests, 1, 0) over later as next_started_requests,
        epoch(lead(window_started_at) over later - window_started_at) - 300 as quiet_s
    from dist_concurrency
    window later as (partition by deployment_id order by window_started_at)
),

found as (
    select
        deployment_id,
        sum(300 * concurrency_mean_requests + left_requests * coalesce(quiet_s, 0)) as flown_s,
        sum(abs(left_requests - next_started_requests)) as lost_requests
    from windows
    group by all
),

flown as (
    select
        coalesce(deployment_id, '(none)') as deployment_id,
        sum(epoch_us(ended_at) - epoch_us(arrived_at)) / 1e6 as flown_s
    from fct_attempts
    where ended_at is not null
    group by all
),

wanted as (
    select coalesce(deployment_id, '(all)') as deployment_id, sum(flown_s) as flown_s
    from flown
    group by grouping sets ((deployment_id), ())
)

select found.deployment_id, 'attempts lost between windows' as what, found.lost_requests as found, 0 as expected
from found
where found.lost_requests <> 0
union all
select wanted.deployment_id, 'seconds in flight' as what, found.flown_s as found, wanted.flown_s as expected
from wanted
left join found on wanted.deployment_id = found.deployment_id
where wanted.flown_s > 0 and not coalesce(abs(found.flown_s - wanted.flown_s) <= 1e-9 * wanted.flown_s, false)
