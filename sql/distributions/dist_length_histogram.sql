-- One row per week, deployment, measure and log2 bin that holds requests; the bin from 0 holds 0 alone.
-- grain: week, deployment_id, measure, bin_low_tokens
-- incremental: week
with lengths as (
    select week, coalesce(deployment_id, '(none)') as deployment_id, 'prompt' as measure, prompt_tokens as length_tokens
    from fct_requests
    where is_backend and prompt_tokens is not null
    union all
    select week, coalesce(deployment_id, '(none)') as deployment_id, 'output' as measure, output_tokens as length_tokens
    from fct_requests
    where is_backend and output_tokens is not null
),

binned as (
    select
        week, deployment_id, measure,
        case when length_tokens > 0 then cast(pow(2, floor(log2(length_tokens))) as bigint) else 0 end
            as bin_low_tokens,
        count(*) as requests
    from lengths
    group by all
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    measure,
    bin_low_tokens,
    greatest(2 * bin_low_tokens, 1) as bin_high_tokens,
    cast(sum(requests) as bigint) as requests
from binned
group by grouping sets ((week, deployment_id, measure, bin_low_tokens), (week, measure, bin_low_tokens))
order by week, deployment_id, measure, bin_low_tokens
