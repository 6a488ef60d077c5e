-- One row per week, deployment, kind of gap and log2 bin in seconds; the bin from 0 holds all under a second.
-- grain: week, deployment_id, kind, bin_low_s
-- incremental: week
with binned as (
    select
        week,
        coalesce(deployment_id, '(none)') as deployment_id,
        kind,
        case when wait_s >= 1 then pow(2, floor(log2(wait_s))) else 0 end as bin_low_s,
        count(*) as waits_requests
    from fct_tool_waits
    where wait_s is not null
    group by all
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    kind,
    bin_low_s,
    greatest(2 * bin_low_s, 1) as bin_high_s,
    cast(sum(waits_requests) as bigint) as waits_requests
from binned
group by grouping sets ((week, deployment_id, kind, bin_low_s), (week, kind, bin_low_s))
order by week, deployment_id, kind, bin_low_s
