-- One row per week and deployment: latency as logged, of the successful requests and with failures as misses.
-- grain: week, deployment_id
-- incremental: week
-- With failures as misses only where nine in ten answered requests are timed: else the failures would weigh too much.
with requests as (
    select
        facts.week, coalesce(facts.deployment_id, '(none)') as deployment_id,
        facts.is_failed, facts.queue_s, facts.ttft_s, facts.tpot_s, facts.e2e_s,
        case when facts.is_failed then cast('inf' as double) else facts.ttft_s end as ttft_all_s,
        case when facts.is_failed then cast('inf' as double) else facts.e2e_s end as e2e_all_s,
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
        count(ttft_s) filter (where not is_failed) as ttft_timed_requests,
        count(tpot_s) filter (where not is_failed) as tpot_timed_requests,
        count(e2e_s) filter (where not is_failed) as e2e_timed_requests,
        quantile_cont(queue_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as queue,
        quantile_cont(ttft_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as ttft,
        quantile_cont(tpot_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as tpot,
        quantile_cont(e2e_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as e2e,
        quantile_cont(ttft_all_s, 0.95) as ttft_all_p95_s,
        quantile_cont(e2e_all_s, 0.95) as e2e_all_p95_s,
        count(*) filter (where not is_failed) / count(*) as answered_ratio,
        count(*) filter (where is_ttft_met) / nullif(count(is_ttft_met), 0) as ttft_met_ratio,
        count(*) filter (where is_tpot_met) / nullif(count(is_tpot_met), 0) as tpot_met_ratio
    from requests
    group by grouping sets ((week, deployment_id), (week))
)

select
    week, deployment_id, requests, failed_requests, timed_requests,
    queue_timed_requests, ttft_timed_requests, tpot_timed_requests, e2e_timed_requests,
    queue[1] as queue_p50_s, queue[2] as queue_p90_s, queue[3] as queue_p95_s, queue[4] as queue_p99_s,
    ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
    if(isfinite(ttft_all_p95_s) and ttft_timed_requests >= 0.9 * (requests - failed_requests), ttft_all_p95_s, null)
        as ttft_all_p95_s,
    answered_ratio * ttft_met_ratio as ttft_attainment_ratio,
    tpot[1] as tpot_p50_s, tpot[2] as tpot_p90_s, tpot[3] as tpot_p95_s, tpot[4] as tpot_p99_s,
    answered_ratio * tpot_met_ratio as tpot_attainment_ratio,
    e2e[1] as e2e_p50_s, e2e[2] as e2e_p90_s, e2e[3] as e2e_p95_s, e2e[4] as e2e_p99_s,
    if(isfinite(e2e_all_p95_s) and e2e_timed_requests >= 0.9 * (requests - failed_requests), e2e_all_p95_s, null)
        as e2e_all_p95_s
from measured
order by week, deployment_id
