-- One row per week, grouping (model or tenant), member, measure and length: requests of that many tokens.
-- grain: week, grouping_name, member, measure, length_tokens
-- incremental: week
with counts as (
    select
        week, model, tenant, prompt_tokens, output_tokens,
        grouping(tenant) as is_of_model, grouping(output_tokens) as is_of_prompt, count(*) as requests
    from fct_requests
    where is_backend
    group by
        grouping sets (
            (week, model, prompt_tokens), (week, model, output_tokens),
            (week, tenant, prompt_tokens), (week, tenant, output_tokens)
        )
)

select
    week,
    if(is_of_model = 1, 'model', 'tenant') as grouping_name,
    coalesce(model, tenant, '(none)') as member,
    if(is_of_prompt = 1, 'prompt', 'output') as measure,
    coalesce(prompt_tokens, output_tokens) as length_tokens,
    requests
from counts
where coalesce(prompt_tokens, output_tokens) is not null
