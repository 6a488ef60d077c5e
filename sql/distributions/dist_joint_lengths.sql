-- One row per week, deployment, log2 prompt bin and log2 output bin that holds requests; the bins from 0 hold 0 alone.
-- grain: week, deployment_id, prompt_bin_low_tokens, output_bin_low_tokens
-- incremental: week
with binned as (
    select
        week, deployment_id, prompt_bin_low_tokens,
        if(output_tokens > 0, cast(pow(2, floor(log2(output_tokens))) as bigint), 0) as output_bin_low_tokens,
        requests
    from fct_output_ends
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    prompt_bin_low_tokens, greatest(2 * prompt_bin_low_tokens, 1) as prompt_bin_high_tokens,
    output_bin_low_tokens, greatest(2 * output_bin_low_tokens, 1) as output_bin_high_tokens,
    cast(sum(requests) as bigint) as requests
from binned
group by
    grouping sets (
        (week, deployment_id, prompt_bin_low_tokens, output_bin_low_tokens),
        (week, prompt_bin_low_tokens, output_bin_low_tokens)
    )
order by week, deployment_id, prompt_bin_low_tokens, output_bin_low_tokens
