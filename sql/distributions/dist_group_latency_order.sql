-- One row per week, grouping, member and measure: exact latency quantiles, of the answered and with failures as misses.
-- grain: week, grouping_name, member, measure
-- incremental: week
-- Only bins that hold a place asked for are sorted: the other values take no memory. A place among failures is a miss.
with needed as (
    select distinct bins.week, bins.grouping_name, bins.member, bins.measure, bins.latency_bin, bins.earlier_requests
    from dist_latency_bins as bins natural inner join dist_latency_places as asked
    where bins.earlier_requests between floor(asked.latency_place) - bins.requests + 1 and ceil(asked.latency_place)
),

needed_bins as (select distinct week, measure, latency_bin from needed),

timed as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, coalesce(model, '(none)') as model,
        coalesce(tenant, '(none)') as tenant, unnest(['queue', 'prefill', 'ttft', 'tpot', 'e2e']) as measure,
        unnest([queue_s, ttft_s - queue_s, ttft_s, tpot_s, e2e_s]) as latency_s,
        cast(floor(256 * log2(if(latency_s < 1e-9, 1e-9, latency_s))) as integer) as latency_bin
    from fct_requests where served_by <> 'gateway_cache' and not is_failed
),

members as (
    select
        timed.week, timed.measure, timed.latency_bin, timed.latency_s,
        unnest([timed.deployment_id, '(all)', timed.model, timed.tenant]) as member,
        unnest(['deployment', 'deployment', 'model', 'tenant']) as grouping_name
    from timed natural inner join needed_bins
),

sorted as (
    select
        needed.week, needed.grouping_name, needed.member, needed.measure, members.latency_s,
        needed.earlier_requests - 1 + row_number() over (
            partition by needed.week, needed.grouping_name, needed.member, needed.measure, needed.latency_bin
            order by members.latency_s
        ) as place
    from needed natural inner join members
),

found as (
    select
        asked.week, asked.grouping_name, asked.member, asked.measure,
        if(asked.has_failures, 'all ', '') || cast(round(100 * asked.quantile_ratio) as integer) as ask,
        min(sorted.latency_s) as low_s, any_value(asked.latency_place) % 1 as rest,
        if(rest = 0 or count(*) = 2, low_s + (max(sorted.latency_s) - low_s) * rest, null) as latency_s
    from dist_latency_places as asked natural inner join sorted
    where sorted.place in (floor(asked.latency_place), ceil(asked.latency_place)) group by all
)

select
    week, grouping_name, member, measure,
    max(latency_s) filter (where ask = '50') as latency_p50_s,
    max(latency_s) filter (where ask = '90') as latency_p90_s,
    max(latency_s) filter (where ask = '95') as latency_p95_s,
    max(latency_s) filter (where ask = '99') as latency_p99_s,
    max(latency_s) filter (where ask = 'all 50') as latency_all_p50_s,
    max(latency_s) filter (where ask = 'all 90') as latency_all_p90_s,
    max(latency_s) filter (where ask = 'all 95') as latency_all_p95_s,
    max(latency_s) filter (where ask = 'all 99') as latency_all_p99_s
from found group by week, grouping_name, member, measure
