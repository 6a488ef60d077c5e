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
),

cut as (
    select
        week, deployment_id, 'output' as measure,
        if(output_tokens > 0, cast(pow(2, floor(log2(output_tokens))) as bigint), 0) as bin_low_tokens,
        sum(requests) as requests
    from fct_output_ends
    where reason <> 'none'
    group by all
),

counted as (
    select binned.*, if(binned.measure = 'output', coalesce(cut.requests, 0), null) as censored_requests
    from binned
    left join cut
        on
            binned.week = cut.week and binned.deployment_id = cut.deployment_id
            and binned.measure = cut.measure and binned.bin_low_tokens = cut.bin_low_tokens
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    measure,
    bin_low_tokens,
    greatest(2 * bin_low_tokens, 1) as bin_high_tokens,
    cast(sum(requests) as bigint) as requests,
    cast(sum(censored_requests) as bigint) as censored_requests
from counted
group by grouping sets ((week, deployment_id, measure, bin_low_tokens), (week, measure, bin_low_tokens))
order by week, deployment_id, measure, bin_low_tokens
