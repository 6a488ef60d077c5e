-- One row per week, deployment and kind of gap: how long tools and users take.
-- grain: week, deployment_id, kind
-- incremental: week
with waits as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, kind, kind_source, wait_s, is_overlap, is_disagreement
    from fct_tool_waits
),

measured as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        kind,
        count(*) as waits_requests,
        count(*) - count(wait_s) as unknown_requests,
        cast(sum(cast(wait_s as decimal(18, 6))) as double) as wait_total_s,
        quantile_cont(wait_s, [0.5, 0.9, 0.95, 0.99]) as quantiles,
        max(wait_s) as wait_max_s,
        count(*) filter (where kind_source = 'logged') / count(*) as logged_ratio,
        count(*) filter (where is_overlap) as overlap_requests,
        count(*) filter (where is_disagreement) as disagreement_requests
    from waits
    group by grouping sets ((week, deployment_id, kind), (week, kind))
)

select
    week, deployment_id, kind, waits_requests, unknown_requests,
    wait_total_s / nullif(waits_requests - unknown_requests, 0) as wait_mean_s,
    quantiles[1] as wait_p50_s,
    quantiles[2] as wait_p90_s,
    quantiles[3] as wait_p95_s,
    quantiles[4] as wait_p99_s,
    wait_max_s, wait_total_s, logged_ratio, overlap_requests, disagreement_requests
from measured
order by week, deployment_id, kind
