-- One row per week and deployment: latency as logged, of the successful requests and with failures as misses.
-- grain: week, deployment_id
-- incremental: week
-- With failures as misses only where nine in ten answered requests are timed: else the failures would weigh too much.
with requests as (
    select
        facts.week, coalesce(facts.deployment_id, '(none)') as deployment_id,
        facts.is_failed, facts.queue_s, facts.ttft_s, facts.tpot_s, facts.e2e_s,
        case when not facts.is_failed then facts.ttft_s <= slos.slo_ttft_p95_s end as is_ttft_met,
        case when not facts.is_failed then facts.tpot_s <= slos.slo_tpot_p95_s end as is_tpot_met
    from fct_requests as facts
    left join dim_deployments as slos on facts.deployment_id = slos.deployment_id
    where facts.served_by <> 'gateway_cache'
),

measured as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        count(*) as requests,
        count(*) filter (where is_failed) as failed_requests,
        count(*) filter (where not is_failed and coalesce(ttft_s, e2e_s) is not null) as timed_requests,
        count(queue_s) filter (where not is_failed) as queue_timed_requests,
        count(ttft_s - queue_s) filter (where not is_failed) as prefill_timed_requests,
        count(ttft_s) filter (where not is_failed) as ttft_timed_requests,
        count(tpot_s) filter (where not is_failed) as tpot_timed_requests,
        count(e2e_s) filter (where not is_failed) as e2e_timed_requests,
        0.9 * count(*) filter (where not is_failed) as enough_requests,
        count(*) filter (where not is_failed) / count(*) as answered_ratio,
        count(*) filter (where is_ttft_met) / nullif(count(is_ttft_met), 0) as ttft_met_ratio,
        count(*) filter (where is_tpot_met) / nullif(count(is_tpot_met), 0) as tpot_met_ratio
    from requests
    group by grouping sets ((week, deployment_id), (week))
)

select
    measured.week, measured.deployment_id, measured.requests, measured.failed_requests, measured.timed_requests,
    measured.queue_timed_requests, measured.prefill_timed_requests, measured.ttft_timed_requests,
    measured.tpot_timed_requests, measured.e2e_timed_requests,
    queue.latency_p50_s as queue_p50_s, queue.latency_p90_s as queue_p90_s,
    queue.latency_p95_s as queue_p95_s, queue.latency_p99_s as queue_p99_s,
    ttft.latency_p50_s as ttft_p50_s, ttft.latency_p90_s as ttft_p90_s,
    ttft.latency_p95_s as ttft_p95_s, ttft.latency_p99_s as ttft_p99_s,
    if(measured.ttft_timed_requests >= measured.enough_requests, ttft.latency_all_p95_s, null) as ttft_all_p95_s,
    measured.answered_ratio * measured.ttft_met_ratio as ttft_attainment_ratio,
    tpot.latency_p50_s as tpot_p50_s, tpot.latency_p90_s as tpot_p90_s,
    tpot.latency_p95_s as tpot_p95_s, tpot.latency_p99_s as tpot_p99_s,
    measured.answered_ratio * measured.tpot_met_ratio as tpot_attainment_ratio,
    e2e.latency_p50_s as e2e_p50_s, e2e.latency_p90_s as e2e_p90_s,
    e2e.latency_p95_s as e2e_p95_s, e2e.latency_p99_s as e2e_p99_s,
    if(measured.e2e_timed_requests >= measured.enough_requests, e2e.latency_all_p95_s, null) as e2e_all_p95_s
from measured
left join dist_latency_order as queue
    on measured.week = queue.week and measured.deployment_id = queue.deployment_id and queue.measure = 'queue'
left join dist_latency_order as ttft
    on measured.week = ttft.week and measured.deployment_id = ttft.deployment_id and ttft.measure = 'ttft'
left join dist_latency_order as tpot
    on measured.week = tpot.week and measured.deployment_id = tpot.deployment_id and tpot.measure = 'tpot'
left join dist_latency_order as e2e
    on measured.week = e2e.week and measured.deployment_id = e2e.deployment_id and e2e.measure = 'e2e'
