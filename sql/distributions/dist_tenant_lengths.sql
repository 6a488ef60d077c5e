-- One row per week, deployment, tenant, '(none)' where none is logged, and measure: how long prompts and outputs are.
-- grain: week, deployment_id, tenant, measure
-- incremental: week
with requests as not materialized (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, coalesce(tenant, '(none)') as tenant,
        prompt_tokens, output_tokens
    from fct_requests
    where is_backend
),

measured as (
    select
        week, deployment_id, tenant, 'prompt' as measure, count(prompt_tokens) as requests,
        avg(prompt_tokens) as length_mean_tokens,
        quantile_cont(try_cast(prompt_tokens as integer), [0.5, 0.9, 0.95, 0.99]) as quantiles,
        max(prompt_tokens) as length_max_tokens, cast(sum(prompt_tokens) as bigint) as length_total_tokens
    from requests
    group by week, deployment_id, tenant
    union all
    select
        week, deployment_id, tenant, 'output' as measure, count(output_tokens) as requests,
        avg(output_tokens) as length_mean_tokens,
        quantile_cont(try_cast(output_tokens as integer), [0.5, 0.9, 0.95, 0.99]) as quantiles,
        max(output_tokens) as length_max_tokens, cast(sum(output_tokens) as bigint) as length_total_tokens
    from requests
    group by week, deployment_id, tenant
)

select
    week, deployment_id, tenant, measure, requests, length_mean_tokens,
    quantiles[1] as length_p50_tokens, quantiles[2] as length_p90_tokens,
    quantiles[3] as length_p95_tokens, quantiles[4] as length_p99_tokens,
    length_max_tokens, length_total_tokens
from measured
order by week, deployment_id, tenant, measure
