-- One row per week, deployment and counting window: how many requests arrive, at most and on average, and how evenly.
-- grain: week, deployment_id, window_s
-- incremental: week
with sizes as (
    select unnest([1, 10, 60, 300, 3600]) as window_s
),

covered as (
    select
        spans.week, sizes.window_s,
        sum(greatest(
            floor(epoch(spans.covered_to_at) / sizes.window_s) - ceil(epoch(spans.covered_from_at) / sizes.window_s), 0
        )) as windows
    from dist_covered_spans as spans
    cross join sizes
    group by spans.week, sizes.window_s
),

seconds as (
    select week, second_at, unnest([deployment_id, '(all)']) as deployment_id, backend_requests
    from fct_arrival_seconds
    where backend_requests > 0
),

windows as (
    select
        seconds.week, seconds.deployment_id, sizes.window_s, sum(seconds.backend_requests) as arrivals,
        time_bucket(to_seconds(sizes.window_s), seconds.second_at) as started_at
    from seconds
    cross join sizes
    group by all
),

counts as (
    select
        windows.week, windows.deployment_id, windows.window_s,
        sum(windows.arrivals) as requests,
        max((windows.arrivals, -epoch_us(windows.started_at))) as peak,
        sum(windows.arrivals) filter (where spans.week is not null) / any_value(covered.windows) as mean_requests,
        sum(windows.arrivals ** 2) filter (where spans.week is not null) / any_value(covered.windows) as mean_squares
    from windows
    inner join covered on windows.week = covered.week and windows.window_s = covered.window_s
    left join dist_covered_spans as spans
        on
            windows.week = spans.week and windows.started_at between
            spans.covered_from_at and spans.covered_to_at - to_seconds(windows.window_s)
    group by all
)

select
    counts.week, counts.deployment_id, counts.window_s, counts.requests,
    counts.mean_requests as arrivals_mean_requests,
    counts.peak[1] as arrivals_peak_requests,
    make_timestamp(-counts.peak[2]) as peak_at,
    counts.peak[1] / counts.mean_requests as peak_to_mean_factor,
    counts.mean_squares / counts.mean_requests - counts.mean_requests as dispersion_factor,
    gaps.gap_cv_factor, gaps.arrival_step_s
from counts
left join dist_arrival_gaps as gaps on counts.week = gaps.week and counts.deployment_id = gaps.deployment_id
order by counts.week, counts.deployment_id, counts.window_s
