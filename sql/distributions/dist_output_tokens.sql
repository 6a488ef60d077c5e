-- One row per week, deployment and model, '(all)' standing for all of them: how long outputs are.
-- grain: week, deployment_id, model
-- incremental: week
with requests as (
    select
        week,
        coalesce(deployment_id, '(none)') as deployment_id,
        coalesce(model, '(none)') as model,
        output_tokens,
        status
    from fct_requests
    where is_backend
),

measured as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        coalesce(model, '(all)') as model,
        count(output_tokens) as requests,
        avg(output_tokens) as output_mean_tokens,
        min(output_tokens) as output_min_tokens,
        quantile_cont(try_cast(output_tokens as integer), [0.5, 0.75, 0.9, 0.95, 0.99, 0.999]) as quantiles,
        max(output_tokens) as output_max_tokens,
        cast(sum(output_tokens) as bigint) as output_total_tokens,
        count(*) - count(output_tokens) as unknown_requests,
        count(output_tokens) filter (where status = 'length') as censored_requests
    from requests
    group by grouping sets ((week, deployment_id, model), (week, deployment_id), (week))
)

select
    week, deployment_id, model,
    requests, output_mean_tokens, output_min_tokens,
    quantiles[1] as output_p50_tokens,
    quantiles[2] as output_p75_tokens,
    quantiles[3] as output_p90_tokens,
    quantiles[4] as output_p95_tokens,
    quantiles[5] as output_p99_tokens,
    quantiles[6] as output_p999_tokens,
    output_max_tokens, output_total_tokens, unknown_requests, censored_requests
from measured
order by week, deployment_id, model
