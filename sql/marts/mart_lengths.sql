-- One row per week, deployment, model and measure: how long prompts and outputs are, beside the previous week.
-- grain: week, deployment_id, model, measure
with lengths as (
    select
        week, deployment_id, model, 'prompt' as measure, requests,
        prompt_mean_tokens as length_mean_tokens, prompt_min_tokens as length_min_tokens,
        prompt_p50_tokens as length_p50_tokens, prompt_p75_tokens as length_p75_tokens,
        prompt_p90_tokens as length_p90_tokens, prompt_p95_tokens as length_p95_tokens,
        prompt_p99_tokens as length_p99_tokens, prompt_p999_tokens as length_p999_tokens,
        prompt_max_tokens as length_max_tokens, prompt_total_tokens as length_total_tokens,
        unknown_requests, cast(null as bigint) as censored_requests
    from dist_prompt_tokens
    union all
    select
        week, deployment_id, model, 'output' as measure, requests,
        output_mean_tokens, output_min_tokens, output_p50_tokens, output_p75_tokens,
        output_p90_tokens, output_p95_tokens, output_p99_tokens, output_p999_tokens,
        output_max_tokens, output_total_tokens, unknown_requests, censored_requests
    from dist_output_tokens
)

select
    lengths.week, lengths.deployment_id, lengths.model, lengths.measure, lengths.requests,
    lengths.length_mean_tokens, lengths.length_min_tokens, lengths.length_p50_tokens, lengths.length_p75_tokens,
    lengths.length_p90_tokens, lengths.length_p95_tokens, lengths.length_p99_tokens, lengths.length_p999_tokens,
    lengths.length_max_tokens, lengths.length_total_tokens, lengths.unknown_requests, lengths.censored_requests,
    mart_coverage.previous_week,
    earlier.requests as previous_requests,
    earlier.length_p50_tokens as previous_length_p50_tokens,
    earlier.length_p99_tokens as previous_length_p99_tokens,
    lengths.requests / nullif(earlier.requests, 0) - 1 as requests_change_factor,
    lengths.length_mean_tokens / nullif(earlier.length_mean_tokens, 0) - 1 as mean_change_factor,
    lengths.length_p50_tokens / nullif(earlier.length_p50_tokens, 0) - 1 as p50_change_factor,
    lengths.length_p99_tokens / nullif(earlier.length_p99_tokens, 0) - 1 as p99_change_factor
from lengths
inner join mart_coverage on lengths.week = mart_coverage.week
left join lengths as earlier
    on
        mart_coverage.previous_week = earlier.week and lengths.deployment_id = earlier.deployment_id
        and lengths.model = earlier.model and lengths.measure = earlier.measure
order by lengths.week, lengths.deployment_id, lengths.model, lengths.measure
