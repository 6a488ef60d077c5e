-- One row per week, deployment and log2 prompt bin: the stratum it is merged into, each of at least 200 answers.
-- grain: week, deployment_id, prompt_bin_low_tokens
-- incremental: week
with recursive bins as (
    select
        week, deployment_id, prompt_bin_low_tokens,
        cast(sum(requests) as bigint) as requests,
        row_number() over (partition by week, deployment_id order by prompt_bin_low_tokens) as place
    from fct_output_ends
    group by week, deployment_id, prompt_bin_low_tokens
),

-- upwards from the shortest prompts: a stratum is closed by the bin that fills it
filled as (
    select week, deployment_id, prompt_bin_low_tokens, requests, place, 1 as stratum, requests as held_requests
    from bins
    where place = 1
    union all
    select
        bins.week, bins.deployment_id, bins.prompt_bin_low_tokens, bins.requests, bins.place,
        filled.stratum + if(filled.held_requests >= 200, 1, 0) as stratum,
        if(filled.held_requests >= 200, 0, filled.held_requests) + bins.requests as held_requests
    from filled
    inner join bins
        on
            filled.week = bins.week and filled.deployment_id = bins.deployment_id
            and filled.place + 1 = bins.place
),

-- what is left over at the top joins the stratum below
joined as (
    select
        *,
        if(
            max(held_requests) over (partition by week, deployment_id, stratum) < 200,
            greatest(stratum - 1, 1), stratum
        ) as whole_stratum
    from filled
)

select
    week, deployment_id, prompt_bin_low_tokens,
    min(prompt_bin_low_tokens) over stratum as stratum_low_tokens,
    greatest(2 * max(prompt_bin_low_tokens) over stratum, 1) as stratum_high_tokens,
    requests
from joined
window stratum as (partition by week, deployment_id, whole_stratum)
order by week, deployment_id, prompt_bin_low_tokens
