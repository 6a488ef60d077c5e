-- One row per week, grouping (model or tenant), member, log2 prompt bin and log2 output bin; bins from 0 hold 0 alone.
-- grain: week, grouping_name, member, prompt_bin_low_tokens, output_bin_low_tokens
-- incremental: week
with binned as (
    select
        week, coalesce(model, '(none)') as model, coalesce(tenant, '(none)') as tenant,
        if(prompt_tokens > 0, cast(floor(log2(prompt_tokens)) as tinyint), -1) as prompt_bin,
        if(output_tokens > 0, cast(floor(log2(output_tokens)) as tinyint), -1) as output_bin,
        count(*) as requests
    from fct_requests
    where is_backend and prompt_tokens is not null and output_tokens is not null
    group by all
)

select
    week,
    if(grouping(tenant) = 1, 'model', 'tenant') as grouping_name,
    coalesce(model, tenant) as member,
    if(prompt_bin >= 0, cast(pow(2, prompt_bin) as bigint), 0) as prompt_bin_low_tokens,
    greatest(2 * prompt_bin_low_tokens, 1) as prompt_bin_high_tokens,
    if(output_bin >= 0, cast(pow(2, output_bin) as bigint), 0) as output_bin_low_tokens,
    greatest(2 * output_bin_low_tokens, 1) as output_bin_high_tokens,
    cast(sum(requests) as bigint) as requests
from binned
group by grouping sets ((week, model, prompt_bin, output_bin), (week, tenant, prompt_bin, output_bin))
order by week, grouping_name, member, prompt_bin_low_tokens, output_bin_low_tokens
