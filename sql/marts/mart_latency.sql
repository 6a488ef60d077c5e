-- One row per week, deployment, measure and source: latency as logged and as modelled, against the objective.
-- grain: week, deployment_id, measure, source
with logged as (
    select
        week, deployment_id, 'logged' as source, requests, timed_requests, failed_requests,
        unnest([
            {'m': 'queue', 'p50': queue_p50_s, 'p90': queue_p90_s, 'p95': queue_p95_s, 'p99': queue_p99_s, 'miss': null},
            {'m': 'ttft', 'p50': ttft_p50_s, 'p90': ttft_p90_s, 'p95': ttft_p95_s, 'p99': ttft_p99_s,
                'miss': ttft_all_p95_s},
            {'m': 'tpot', 'p50': tpot_p50_s, 'p90': tpot_p90_s, 'p95': tpot_p95_s, 'p99': tpot_p99_s, 'miss': null},
            {'m': 'e2e', 'p50': e2e_p50_s, 'p90': e2e_p90_s, 'p95': e2e_p95_s, 'p99': e2e_p99_s, 'miss': e2e_all_p95_s}
        ]) as quantiles
    from dist_latency
),

modelled as (
    select
        plan.week, plan.deployment_id, plan.source, any_value(logged.requests) as requests,
        max(plan.timed_requests) as timed_requests, any_value(logged.failed_requests) as failed_requests,
        {
            'm': plan.measure,
            'p50': max(plan.value_s) filter (where round(plan.quantile_ratio, 3) = 0.5),
            'p90': max(plan.value_s) filter (where round(plan.quantile_ratio, 3) = 0.9),
            'p95': max(plan.value_s) filter (where round(plan.quantile_ratio, 3) = 0.95),
            'p99': max(plan.value_s) filter (where round(plan.quantile_ratio, 3) = 0.99),
            'miss': cast(null as double)
        } as quantiles
    from plan_latency as plan
    left join dist_latency as logged on plan.week = logged.week and plan.deployment_id = logged.deployment_id
    where plan.scenario_id = 'today' and plan.source = 'modelled'
    group by plan.week, plan.deployment_id, plan.source, plan.measure
),

known as (
    select *, case quantiles.m when 'ttft' then slo_ttft_p95_s when 'tpot' then slo_tpot_p95_s end as slo_s
    from (select * from logged union all select * from modelled) as every_row
    left join (select deployment_id, slo_ttft_p95_s, slo_tpot_p95_s from dim_deployments) as slos using (deployment_id)
    where quantiles.p50 is not null
)

select
    this.week, this.deployment_id, this.quantiles.m as measure, this.source,
    this.quantiles.p50 as latency_p50_s, this.quantiles.p90 as latency_p90_s,
    this.quantiles.p95 as latency_p95_s, this.quantiles.p99 as latency_p99_s,
    this.quantiles.miss as latency_all_p95_s,
    this.slo_s,
    case when this.quantiles.m = 'ttft' and this.source = 'logged' then coalesce(this.quantiles.miss <= this.slo_s, false)
        else this.quantiles.p95 <= this.slo_s end as is_slo_met,
    this.requests, this.timed_requests, this.failed_requests,
    earlier.quantiles.p95 as previous_latency_p95_s,
    this.quantiles.p95 / nullif(earlier.quantiles.p95, 0) - 1 as p95_change_factor
from known as this
inner join mart_coverage on this.week = mart_coverage.week
left join known as earlier
    on mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
    and this.quantiles.m = earlier.quantiles.m and this.source = earlier.source
order by this.week, this.deployment_id, measure, this.source
