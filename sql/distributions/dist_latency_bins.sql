-- One row per week, grouping, member, measure and narrow bin of latency: 256 to each doubling, failures in the last.
-- grain: week, grouping_name, member, measure, latency_bin
-- incremental: week
with timed as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, coalesce(model, '(none)') as model,
        coalesce(tenant, '(none)') as tenant,
        [
            if(is_failed, 1000000, cast(floor(256 * log2(if(time_s < 1e-9, 1e-9, time_s))) as integer))
            for time_s in [queue_s, ttft_s - queue_s, ttft_s, tpot_s, e2e_s]
        ] as bins
    from fct_requests
    where served_by <> 'gateway_cache'
),

counted as (
    select
        week, coalesce(deployment_id, model, tenant) as one,
        case when grouping(deployment_id) = 0 then 'deployment' when grouping(model) = 0 then 'model' else 'tenant' end
            as grouping_name,
        bins[1] as queue, bins[2] as prefill, bins[3] as ttft, bins[4] as tpot, bins[5] as e2e, count(*) as requests
    from timed
    group by week, grouping sets (deployment_id, model, tenant), grouping sets (queue, prefill, ttft, tpot, e2e)
),

binned as (
    select
        week, grouping_name, one, requests, unnest(['queue', 'prefill', 'ttft', 'tpot', 'e2e']) as measure,
        unnest([queue, prefill, ttft, tpot, e2e]) as latency_bin
    from counted
),

summed as (
    select
        week, grouping_name, coalesce(one, '(all)') as member, measure, latency_bin,
        cast(sum(requests) as bigint) as requests
    from binned
    where latency_bin is not null
    group by
        grouping sets (
            (week, grouping_name, measure, latency_bin, one), (week, grouping_name, measure, latency_bin)
        )
    having grouping(one) = 0 or grouping_name = 'deployment'
)

select
    *,
    cast(sum(requests) over (partition by week, grouping_name, member, measure order by latency_bin) as bigint)
    - requests as earlier_requests
from summed
