-- One row per week, deployment, measure and length: requests of that many tokens, each length once.
-- grain: week, deployment_id, measure, length_tokens
-- incremental: week
with counts as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id,
        'prompt' as measure, prompt_tokens as length_tokens, count(*) as requests
    from fct_requests
    where is_backend and prompt_tokens is not null
    group by all
    union all
    select
        week, coalesce(deployment_id, '(none)') as deployment_id,
        'output' as measure, output_tokens as length_tokens, count(*) as requests
    from fct_requests
    where is_backend and output_tokens is not null
    group by all
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    measure, length_tokens,
    cast(sum(requests) as bigint) as requests
from counts
group by grouping sets ((week, deployment_id, measure, length_tokens), (week, measure, length_tokens))
