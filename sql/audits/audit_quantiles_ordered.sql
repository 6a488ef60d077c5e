-- One row per distribution whose quantiles are out of order: none may exist.
-- grain: relation, week, deployment_id, model
with lengths as (
    select
        'dist_prompt_tokens' as relation, week, deployment_id, model,
        [
            prompt_min_tokens, prompt_p50_tokens, prompt_p75_tokens, prompt_p90_tokens, prompt_p95_tokens,
            prompt_p99_tokens, prompt_p999_tokens, prompt_max_tokens
        ] as quantiles
    from dist_prompt_tokens
    union all
    select
        'dist_output_tokens' as relation, week, deployment_id, model,
        [
            output_min_tokens, output_p50_tokens, output_p75_tokens, output_p90_tokens, output_p95_tokens,
            output_p99_tokens, output_p999_tokens, output_max_tokens
        ] as quantiles
    from dist_output_tokens
    union all
    select
        'dist_tool_waits' as relation, week, deployment_id, kind as model,
        [0, wait_p50_s, wait_p90_s, wait_p95_s, wait_p99_s, wait_max_s] as quantiles
    from dist_tool_waits
    where wait_p50_s is not null
    union all
    select
        'dist_latency' as relation, week, deployment_id, 'ttft' as model,
        [ttft_p50_s, ttft_p90_s, ttft_p95_s, ttft_p99_s] as quantiles
    from dist_latency
    union all
    select
        'dist_group_latency' as relation, week, member as deployment_id, grouping_name || ' ' || measure as model,
        [latency_p50_s, latency_p90_s, latency_p95_s, latency_p99_s] as quantiles
    from dist_group_latency
)

select relation, week, deployment_id, model, quantiles
from lengths
where quantiles <> list_sort(quantiles)
