-- One row per week, deployment, measure and log2 bin that holds requests in this week or the previous one.
-- grain: week, deployment_id, measure, bin_low_tokens
with bins as (
    select week, deployment_id, measure, bin_low_tokens, bin_high_tokens from dist_length_histogram
    union
    select
        mart_coverage.week, earlier.deployment_id, earlier.measure, earlier.bin_low_tokens, earlier.bin_high_tokens
    from mart_coverage
    inner join dist_length_histogram as earlier on mart_coverage.previous_week = earlier.week
),

totals as (
    select week, deployment_id, measure, sum(requests) as requests, sum(censored_requests) as censored_requests
    from dist_length_histogram
    group by all
),

shares as (
    select
        histogram.week, histogram.deployment_id, histogram.measure, histogram.bin_low_tokens, histogram.requests,
        histogram.requests / totals.requests as share_ratio,
        histogram.censored_requests, histogram.censored_requests / totals.requests as censored_share_ratio
    from dist_length_histogram as histogram
    inner join totals
        on
            histogram.week = totals.week and histogram.deployment_id = totals.deployment_id
            and histogram.measure = totals.measure
)

select
    bins.week, bins.deployment_id, bins.measure, bins.bin_low_tokens, bins.bin_high_tokens,
    coalesce(this.requests, 0) as requests,
    coalesce(this.share_ratio, 0) as share_ratio,
    this.censored_requests, this.censored_share_ratio, totals.censored_requests / totals.requests as censored_ratio,
    case when mart_coverage.previous_week is not null then coalesce(earlier.requests, 0) end as previous_requests,
    case when mart_coverage.previous_week is not null then coalesce(earlier.share_ratio, 0) end as previous_share_ratio
from bins
inner join mart_coverage on bins.week = mart_coverage.week
left join shares as this
    on
        bins.week = this.week and bins.deployment_id = this.deployment_id
        and bins.measure = this.measure and bins.bin_low_tokens = this.bin_low_tokens
left join totals
    on bins.week = totals.week and bins.deployment_id = totals.deployment_id and bins.measure = totals.measure
left join shares as earlier
    on
        mart_coverage.previous_week = earlier.week and bins.deployment_id = earlier.deployment_id
        and bins.measure = earlier.measure and bins.bin_low_tokens = earlier.bin_low_tokens
order by bins.week, bins.deployment_id, bins.measure, bins.bin_low_tokens
