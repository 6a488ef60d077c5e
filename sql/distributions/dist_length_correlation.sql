-- One row per week and deployment: how outputs go with prompts, by Pearson's coefficient of tokens and of logarithms.
-- grain: week, deployment_id
-- incremental: week
-- Sums are of whole numbers and decimals, so that the order of rows changes no digit.
with lengths as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, prompt_tokens, output_tokens,
        cast(ln(greatest(prompt_tokens, 1)) as decimal(9, 6)) as prompt_log,
        cast(ln(greatest(output_tokens, 1)) as decimal(9, 6)) as output_log
    from fct_requests
    where is_backend and prompt_tokens is not null and output_tokens is not null
),

sums as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        count(*) as requests,
        cast(sum(prompt_tokens) as double) as x,
        cast(sum(output_tokens) as double) as y,
        cast(sum(cast(prompt_tokens as hugeint) * prompt_tokens) as double) as xx,
        cast(sum(cast(output_tokens as hugeint) * output_tokens) as double) as yy,
        cast(sum(cast(prompt_tokens as hugeint) * output_tokens) as double) as xy,
        cast(sum(prompt_log) as double) as log_x,
        cast(sum(output_log) as double) as log_y,
        cast(sum(prompt_log * prompt_log) as double) as log_xx,
        cast(sum(output_log * output_log) as double) as log_yy,
        cast(sum(prompt_log * output_log) as double) as log_xy
    from lengths
    group by grouping sets ((week, deployment_id), (week))
),

spreads as (
    select
        *,
        (requests * xx - x * x) * (requests * yy - y * y) as spread,
        (requests * log_xx - log_x * log_x) * (requests * log_yy - log_y * log_y) as log_spread
    from sums
)

select
    week, deployment_id, requests,
    if(spread > 0, greatest(least((requests * xy - x * y) / sqrt(greatest(spread, 0)), 1), -1), null)
        as correlation_factor,
    if(log_spread > 1e-6, greatest(least((requests * log_xy - log_x * log_y) / sqrt(log_spread), 1), -1), null)
        as log_correlation_factor
from spreads
order by week, deployment_id
