-- One row per week, deployment, measure and source: latency as logged and as modelled, against the objective.
-- grain: week, deployment_id, measure, source
-- What is modelled is the most demanding window on today's fleet; what is logged, the week.
with modelled as (
    select
        week, deployment_id, measure, source,
        max(timed_requests) as timed_requests,
        max(value_s) filter (where round(quantile_ratio, 3) = 0.5) as latency_p50_s,
        max(value_s) filter (where round(quantile_ratio, 3) = 0.9) as latency_p90_s,
        max(value_s) filter (where round(quantile_ratio, 3) = 0.95) as latency_p95_s,
        max(value_s) filter (where round(quantile_ratio, 3) = 0.99) as latency_p99_s
    from plan_latency
    where scenario_id = 'today' and source = 'modelled'
    group by week, deployment_id, measure, source
),

every_row as (
    select *, 'logged' as source from dist_latency_quantiles
    union all by name
    select *, timed_requests as requests from modelled
),

known as (
    select
        every_row.*,
        case every_row.measure when 'ttft' then slos.slo_ttft_p95_s when 'tpot' then slos.slo_tpot_p95_s end as slo_s
    from every_row
    left join dim_deployments as slos on every_row.deployment_id = slos.deployment_id
)

select
    this.week, this.deployment_id, this.measure, this.source,
    this.latency_p50_s, this.latency_p90_s, this.latency_p95_s, this.latency_p99_s,
    this.latency_all_p50_s, this.latency_all_p90_s, this.latency_all_p95_s, this.latency_all_p99_s,
    this.slo_s, this.attainment_ratio,
    case
        when this.slo_s is null then null
        when this.attainment_ratio is not null then this.attainment_ratio >= 0.95
        else this.latency_p95_s <= this.slo_s
    end as is_slo_met,
    this.requests, this.timed_requests, this.failed_requests,
    earlier.latency_p95_s as previous_latency_p95_s,
    this.latency_p95_s / nullif(earlier.latency_p95_s, 0) - 1 as p95_change_factor
from known as this
inner join mart_coverage on this.week = mart_coverage.week
left join known as earlier
    on
        mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
        and this.measure = earlier.measure and this.source = earlier.source
order by this.week, this.deployment_id, this.measure, this.source
