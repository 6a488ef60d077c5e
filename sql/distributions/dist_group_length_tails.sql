-- One row per week, grouping, member and measure: tail beyond the p95 as Hill's index and generalised Pareto (GPD).
-- grain: week, grouping_name, member, measure
-- incremental: week
-- GPD by probability-weighted moments (Hosking and Wallis 1987, shapes below 0.5); none from under 50 in the tail.
with counts as (
    select week, 'deployment' as grouping_name, deployment_id as member, measure, length_tokens, requests
    from dist_length_counts
    union all
    select week, grouping_name, member, measure, length_tokens, requests from dist_group_length_counts
),

placed as (
    select
        *,
        sum(requests) over (one order by length_tokens) as upto_requests,
        sum(requests) over one as all_requests,
        cast(ln(greatest(length_tokens, 1)) as decimal(9, 6)) as length_log
    from counts
    window one as (partition by week, grouping_name, member, measure)
),

tails as (
    select
        *,
        min(if(upto_requests >= 0.95 * all_requests, length_tokens, null)) over one as threshold_tokens,
        min(if(upto_requests >= 0.95 * all_requests, upto_requests, null)) over one as below_requests
    from placed
    window one as (partition by week, grouping_name, member, measure)
),

sums as (
    select
        week, grouping_name, member, measure, threshold_tokens,
        cast(max(all_requests) as bigint) as requests, cast(max(all_requests) - max(below_requests) as double) as n,
        cast(sum(requests * length_log) as double) / max(all_requests) as mean_log,
        cast(sum(requests * length_log * length_log) as double) / max(all_requests) as square_log,
        cast(sum(requests * length_log) filter (where length_tokens > threshold_tokens) as double) as over_log,
        sum(requests * greatest(length_tokens - threshold_tokens, 0)) as excess,
        -- twice the excess of each request times its place in the order of the tail
        sum(
            requests * greatest(length_tokens - threshold_tokens, 0)
            * (2 * (upto_requests - below_requests) - requests + 1)
        ) as placed_twice
    from tails
    group by week, grouping_name, member, measure, threshold_tokens
),

moments as (
    select *, excess / n as b0, ((n + 0.35) * excess - placed_twice / 2) / (n * n) as b1 from sums
)

select
    week, grouping_name, member, measure, requests, cast(n as bigint) as tail_requests, threshold_tokens,
    case when n >= 50 and threshold_tokens > 0 then 1 / (over_log / n - ln(threshold_tokens)) end as hill_factor,
    case when n >= 50 then 2 - b0 / (b0 - 2 * b1) end as gpd_shape_factor,
    case when n >= 50 then 2 * b0 * b1 / (b0 - 2 * b1) end as gpd_scale_tokens,
    mean_log as log_mean_factor,
    sqrt(greatest(square_log - mean_log * mean_log, 0)) as log_sd_factor
from moments
order by week, grouping_name, member, measure
