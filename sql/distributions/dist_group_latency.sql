-- One row per week, grouping (model or tenant), member and measure that the log times: latency as logged.
-- grain: week, grouping_name, member, measure
-- incremental: week
-- All requests count failures as misses, only where nine in ten answered are timed: else failures would weigh too much.
with counted as (
    select
        week, grouping_name, member, measure,
        cast(coalesce(sum(requests) filter (where latency_bin < 1000000), 0) as bigint) as timed_requests,
        cast(coalesce(sum(requests) filter (where latency_bin = 1000000), 0) as bigint) as failed_requests
    from dist_latency_bins
    where grouping_name <> 'deployment'
    group by week, grouping_name, member, measure
),

weighed as (
    select
        counted.*, arrivals.requests,
        counted.timed_requests >= 0.9 * (arrivals.requests - counted.failed_requests) as is_enough
    from counted
    inner join dist_group_arrivals as arrivals
        on
            counted.week = arrivals.week and counted.grouping_name = arrivals.grouping_name
            and counted.member = arrivals.member and arrivals.window_s = 3600
)

select
    weighed.week, weighed.grouping_name, weighed.member, weighed.measure, weighed.requests, weighed.timed_requests,
    weighed.failed_requests, times.latency_p50_s, times.latency_p90_s, times.latency_p95_s, times.latency_p99_s,
    if(weighed.is_enough, times.latency_all_p50_s, null) as latency_all_p50_s,
    if(weighed.is_enough, times.latency_all_p90_s, null) as latency_all_p90_s,
    if(weighed.is_enough, times.latency_all_p95_s, null) as latency_all_p95_s,
    if(weighed.is_enough, times.latency_all_p99_s, null) as latency_all_p99_s
from weighed
inner join dist_group_latency_order as times
    on
        weighed.week = times.week and weighed.grouping_name = times.grouping_name
        and weighed.member = times.member and weighed.measure = times.measure
where times.latency_p50_s is not null
order by weighed.week, weighed.grouping_name, weighed.member, weighed.measure
