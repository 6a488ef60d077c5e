-- One row per week, deployment, measure and narrow bin of latency: 256 bins to each doubling, failures in the last.
-- grain: week, deployment_id, measure, latency_bin
-- incremental: week
with timed as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, is_failed,
        unnest(['queue', 'prefill', 'ttft', 'tpot', 'e2e']) as measure,
        unnest([queue_s, ttft_s - queue_s, ttft_s, tpot_s, e2e_s]) as latency_s
    from fct_requests
    where served_by <> 'gateway_cache'
),

binned as (
    select
        week, deployment_id, measure,
        if(is_failed, 1000000, cast(floor(256 * log2(greatest(latency_s, 1e-9))) as integer)) as latency_bin,
        count(*) as requests
    from timed
    where is_failed or latency_s is not null
    group by all
),

summed as (
    select
        week, coalesce(deployment_id, '(all)') as deployment_id, measure, latency_bin,
        cast(sum(requests) as bigint) as requests
    from binned
    group by grouping sets ((week, deployment_id, measure, latency_bin), (week, measure, latency_bin))
)

select
    *,
    cast(sum(requests) over (partition by week, deployment_id, measure order by latency_bin) as bigint) - requests
        as earlier_requests
from summed
