-- One row per week, grouping (model or tenant), member, measure and log2 bin that holds requests; bin 0 holds 0 alone.
-- grain: week, grouping_name, member, measure, bin_low_tokens
-- incremental: week
select
    week, grouping_name, member, measure,
    if(length_tokens > 0, cast(pow(2, floor(log2(length_tokens))) as bigint), 0) as bin_low_tokens,
    greatest(2 * bin_low_tokens, 1) as bin_high_tokens,
    cast(sum(requests) as bigint) as requests
from dist_group_length_counts
group by all
order by week, grouping_name, member, measure, bin_low_tokens
