-- One row per week, deployment and measure that the log times: latency as logged.
-- grain: week, deployment_id, measure
-- incremental: week
with measures as (
    select
        week, deployment_id, 'queue' as measure, requests, queue_timed_requests as timed_requests, failed_requests,
        queue_p50_s as latency_p50_s, queue_p90_s as latency_p90_s, queue_p95_s as latency_p95_s,
        queue_p99_s as latency_p99_s,
        cast(null as double) as latency_all_p95_s,
        cast(null as double) as attainment_ratio
    from dist_latency
    union all
    select
        week, deployment_id, 'ttft' as measure, requests, ttft_timed_requests, failed_requests,
        ttft_p50_s, ttft_p90_s, ttft_p95_s, ttft_p99_s, ttft_all_p95_s, ttft_attainment_ratio
    from dist_latency
    union all
    select
        week, deployment_id, 'tpot' as measure, requests, tpot_timed_requests, failed_requests,
        tpot_p50_s, tpot_p90_s, tpot_p95_s, tpot_p99_s, null as latency_all_p95_s, tpot_attainment_ratio
    from dist_latency
    union all
    select
        week, deployment_id, 'e2e' as measure, requests, e2e_timed_requests, failed_requests,
        e2e_p50_s, e2e_p90_s, e2e_p95_s, e2e_p99_s, e2e_all_p95_s, null as attainment_ratio
    from dist_latency
)

select
    week, deployment_id, measure, requests, timed_requests, failed_requests,
    latency_p50_s, latency_p90_s, latency_p95_s, latency_p99_s, latency_all_p95_s, attainment_ratio
from measures
where latency_p50_s is not null
order by week, deployment_id, measure
