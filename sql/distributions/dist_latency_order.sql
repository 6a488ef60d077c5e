-- One row per week, deployment and measure: exact quantiles of latency, and the p95 with failures as misses.
-- grain: week, deployment_id, measure
-- incremental: week
-- Only bins that hold a place asked for are sorted: the other values take no memory. A place among failures is a miss.
with asked as (
    select
        bins.week, bins.deployment_id, bins.measure, asks.ask,
        asks.share * (sum(bins.requests) filter (where asks.ask = 'all' or bins.latency_bin < 1000000) - 1) as place
    from dist_latency_bins as bins
    cross join (values ('p50', 0.5), ('p90', 0.9), ('p95', 0.95), ('p99', 0.99), ('all', 0.95)) as asks (ask, share)
    group by bins.week, bins.deployment_id, bins.measure, asks.ask, asks.share
),

needed as (
    select distinct bins.week, bins.deployment_id, bins.measure, bins.latency_bin, bins.earlier_requests
    from dist_latency_bins as bins
    inner join asked
        on bins.week = asked.week and bins.deployment_id = asked.deployment_id and bins.measure = asked.measure
    where bins.earlier_requests <= ceil(asked.place) and floor(asked.place) < bins.earlier_requests + bins.requests
),

timed as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id,
        unnest(['queue', 'ttft', 'tpot', 'e2e']) as measure, unnest([queue_s, ttft_s, tpot_s, e2e_s]) as latency_s,
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
        asked.week, asked.deployment_id, asked.measure, asked.ask, asked.place - floor(asked.place) as rest,
        min(sorted.latency_s) as low_s, if(rest = 0 or count(*) = 2, max(sorted.latency_s), null) as high_s
    from asked
    inner join sorted
        on asked.week = sorted.week and asked.deployment_id = sorted.deployment_id and asked.measure = sorted.measure
    where sorted.place in (floor(asked.place), ceil(asked.place))
    group by asked.week, asked.deployment_id, asked.measure, asked.ask, asked.place
)

select
    week, deployment_id, measure,
    max(low_s + (high_s - low_s) * rest) filter (where ask = 'p50') as latency_p50_s,
    max(low_s + (high_s - low_s) * rest) filter (where ask = 'p90') as latency_p90_s,
    max(low_s + (high_s - low_s) * rest) filter (where ask = 'p95') as latency_p95_s,
    max(low_s + (high_s - low_s) * rest) filter (where ask = 'p99') as latency_p99_s,
    max(low_s + (high_s - low_s) * rest) filter (where ask = 'all') as latency_all_p95_s
from found group by week, deployment_id, measure
