-- One row per week, deployment and model, '(all)' standing for all of them: how long prompts are.
-- grain: week, deployment_id, model
-- incremental: week
with requests as (
    select
        week,
        coalesce(deployment_id, '(none)') as deployment_id,
        coalesce(model, '(none)') as model,
        prompt_tokens
    from fct_requests
    where is_backend
),

measured as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        coalesce(model, '(all)') as model,
        count(prompt_tokens) as requests,
        avg(prompt_tokens) as prompt_mean_tokens,
        min(prompt_tokens) as prompt_min_tokens,
        quantile_cont(try_cast(prompt_tokens as integer), [0.5, 0.75, 0.9, 0.95, 0.99, 0.999]) as quantiles,
        max(prompt_tokens) as prompt_max_tokens,
        cast(sum(prompt_tokens) as bigint) as prompt_total_tokens,
        count(*) - count(prompt_tokens) as unknown_requests
    from requests
    group by grouping sets ((week, deployment_id, model), (week, deployment_id), (week))
)

select
    week, deployment_id, model,
    requests, prompt_mean_tokens, prompt_min_tokens,
    quantiles[1] as prompt_p50_tokens,
    quantiles[2] as prompt_p75_tokens,
    quantiles[3] as prompt_p90_tokens,
    quantiles[4] as prompt_p95_tokens,
    quantiles[5] as prompt_p99_tokens,
    quantiles[6] as prompt_p999_tokens,
    prompt_max_tokens, prompt_total_tokens, unknown_requests
from measured
order by week, deployment_id, model
