-- One row per week, deployment and measure: exact quantiles of latency, of the answered and with failures as misses.
-- grain: week, deployment_id, measure
-- incremental: week
select
    week, member as deployment_id, measure, latency_p50_s, latency_p90_s, latency_p95_s, latency_p99_s,
    latency_all_p50_s, latency_all_p90_s, latency_all_p95_s, latency_all_p99_s
from dist_group_latency_order
where grouping_name = 'deployment'
