-- One row per week, deployment and measure that the log times: latency as logged, of the answered and of all requests.
-- grain: week, deployment_id, measure
-- incremental: week
-- All requests count failures as misses, only where nine in ten answered are timed: else failures would weigh too much.
with counted as (
    select
        times.*, counts.requests, counts.failed_requests,
        case times.measure
            when 'queue' then counts.queue_timed_requests
            when 'prefill' then counts.prefill_timed_requests
            when 'ttft' then counts.ttft_timed_requests
            when 'tpot' then counts.tpot_timed_requests
            when 'e2e' then counts.e2e_timed_requests
        end as timed_requests,
        case times.measure
            when 'ttft' then counts.ttft_attainment_ratio when 'tpot' then counts.tpot_attainment_ratio
        end as attainment_ratio
    from dist_latency_order as times
    inner join dist_latency as counts on times.week = counts.week and times.deployment_id = counts.deployment_id
),

weighed as (
    select *, timed_requests >= 0.9 * (requests - failed_requests) as is_enough from counted
)

select
    week, deployment_id, measure, requests, timed_requests, failed_requests,
    latency_p50_s, latency_p90_s, latency_p95_s, latency_p99_s,
    if(is_enough, latency_all_p50_s, null) as latency_all_p50_s,
    if(is_enough, latency_all_p90_s, null) as latency_all_p90_s,
    if(is_enough, latency_all_p95_s, null) as latency_all_p95_s,
    if(is_enough, latency_all_p99_s, null) as latency_all_p99_s,
    attainment_ratio
from weighed
where latency_p50_s is not null
order by week, deployment_id, measure
