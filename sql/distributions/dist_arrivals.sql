-- One row per week, deployment and counting window: how many requests arrive, at most and on average, and how evenly.
-- grain: week, deployment_id, window_s
with seconds as (
    select week, deployment_id, second_at, backend_requests from fct_arrival_seconds where backend_requests > 0
    union all
    select week, '(all)' as deployment_id, second_at, backend_requests
    from fct_arrival_seconds
    where backend_requests > 0
),

windows as (
    select
        seconds.week, seconds.deployment_id, sizes.window_s,
        time_bucket(to_seconds(sizes.window_s), seconds.second_at) as started_at,
        cast(sum(seconds.backend_requests) as bigint) as arrivals
    from seconds
    cross join (values (1), (10), (60), (300), (3600)) as sizes (window_s)
    group by all
),

sums as (
    select
        week, deployment_id, window_s,
        cast(sum(arrivals) as bigint) as requests,
        cast(sum(arrivals * arrivals) as double) as sum_squares,
        count(*) as busy_windows,
        max((arrivals, -epoch_us(started_at))) as peak
    from windows
    group by week, deployment_id, window_s
),

rates as (
    select
        sums.*,
        greatest(ceil(dist_coverage.covered_s / sums.window_s), sums.busy_windows) as windows,
        sums.requests / greatest(ceil(dist_coverage.covered_s / sums.window_s), sums.busy_windows) as mean_requests
    from sums
    inner join dist_coverage on sums.week = dist_coverage.week
)

select
    rates.week, rates.deployment_id, rates.window_s, rates.requests,
    rates.mean_requests as arrivals_mean_requests,
    rates.peak[1] as arrivals_peak_requests,
    make_timestamp(-rates.peak[2]) as peak_at,
    rates.peak[1] / rates.mean_requests as peak_to_mean_factor,
    greatest(rates.sum_squares / rates.windows - rates.mean_requests * rates.mean_requests, 0)
    / rates.mean_requests as dispersion_factor,
    dist_arrival_gaps.gap_cv_factor,
    dist_arrival_gaps.arrival_step_s
from rates
left join dist_arrival_gaps
    on rates.week = dist_arrival_gaps.week and rates.deployment_id = dist_arrival_gaps.deployment_id
order by rates.week, rates.deployment_id, rates.window_s
