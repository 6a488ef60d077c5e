-- One row per week, deployment and measure: exact quantiles of latency, of the answered and with failures as misses.
-- grain: week, deployment_id, measure
-- incremental: week
-- Only bins that hold a place asked for are sorted: the other values take no memory. A place among failures is a miss.
with needed as (
    select distinct bins.week, bins.deployment_id, bins.measure, bins.latency_bin, bins.earlier_requests
    from dist_latency_bins as bins
    inner join dist_latency_places as asked
        on bins.week = asked.week and bins.deployment_id = asked.deployment_id and bins.measure = asked.measure
    where
        bins.earlier_requests <= ceil(asked.latency_place)
        and floor(asked.latency_place) < bins.earlier_requests + bins.requests
),

timed as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id,
        unnest(['queue', 'prefill', 'ttft', 'tpot', 'e2e']) as measure,
        unnest([queue_s, ttft_s - queue_s, ttft_s, tpot_s, e2e_s]) as latency_s,
        cast(floor(256 * log2(greatest(latency_s, 1e-9))) as integer) as latency_bin
    from fct_requests where served_by <> 'gateway_cache' and not is_failed
),

sorted as (
    select
        needed.week, needed.deployment_id, needed.measure, timed.latency_s,
        needed.earlier_requests - 1 + row_number() over (
            partition by needed.week, needed.deployment_id, needed.measure, needed.latency_bin order by timed.latency_s
        ) as place
    from needed
    inner join timed
        on needed.week = timed.week and needed.measure = timed.measure and needed.latency_bin = timed.latency_bin
    where needed.deployment_id in (timed.deployment_id, '(all)') and timed.latency_s is not null
),

found as (
    select
        asked.week, asked.deployment_id, asked.measure, min(sorted.latency_s) as low_s,
        if(asked.has_failures, 'all ', '') || cast(round(100 * asked.quantile_ratio) as integer) as ask,
        asked.latency_place - floor(asked.latency_place) as rest,
        if(rest = 0 or count(*) = 2, low_s + (max(sorted.latency_s) - low_s) * rest, null) as latency_s
    from dist_latency_places as asked
    inner join sorted
        on asked.week = sorted.week and asked.deployment_id = sorted.deployment_id and asked.measure = sorted.measure
    where sorted.place in (floor(asked.latency_place), ceil(asked.latency_place))
    group by
        asked.week, asked.deployment_id, asked.measure, asked.quantile_ratio, asked.has_failures, asked.latency_place
)

select
    week, deployment_id, measure,
    max(latency_s) filter (where ask = '50') as latency_p50_s,
    max(latency_s) filter (where ask = '90') as latency_p90_s,
    max(latency_s) filter (where ask = '95') as latency_p95_s,
    max(latency_s) filter (where ask = '99') as latency_p99_s,
    max(latency_s) filter (where ask = 'all 50') as latency_all_p50_s,
    max(latency_s) filter (where ask = 'all 90') as latency_all_p90_s,
    max(latency_s) filter (where ask = 'all 95') as latency_all_p95_s,
    max(latency_s) filter (where ask = 'all 99') as latency_all_p99_s
from found group by week, deployment_id, measure
