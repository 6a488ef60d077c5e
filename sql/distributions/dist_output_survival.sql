-- One row per week, deployment and stratum of prompts: lengths of outputs had nothing cut them (Kaplan and Meier 1958).
-- grain: week, deployment_id, stratum_low_tokens
-- incremental: week
-- Nothing is drawn beyond the longest uncut output: the mean is that of min(output, support), and quantiles end there.
with counts as (
    select
        ends.week, ends.deployment_id, strata.stratum_low_tokens, strata.stratum_high_tokens, ends.output_tokens,
        sum(ends.requests) as requests,
        coalesce(sum(ends.requests) filter (where ends.reason = 'none'), 0) as ended_requests
    from fct_output_ends as ends
    inner join dist_prompt_strata as strata
        on
            ends.week = strata.week and ends.deployment_id = strata.deployment_id
            and ends.prompt_bin_low_tokens = strata.prompt_bin_low_tokens
    group by all
),

risks as (
    select
        *,
        sum(requests) over (
            partition by week, deployment_id, stratum_low_tokens order by output_tokens desc
        ) as risk_requests
    from counts
),

curve as (
    select
        *,
        product(1 - ended_requests / risk_requests) over lengths as survival_ratio,
        lag(output_tokens, 1, 0) over lengths as before_tokens
    from risks
    window lengths as (partition by week, deployment_id, stratum_low_tokens order by output_tokens)
),

steps as (
    select
        *,
        max(if(ended_requests > 0, output_tokens, null)) over stratum as support_tokens,
        lag(survival_ratio, 1, 1) over (stratum order by output_tokens) as before_ratio
    from curve
    window stratum as (partition by week, deployment_id, stratum_low_tokens)
)

select
    week, deployment_id, stratum_low_tokens, stratum_high_tokens,
    cast(sum(requests) as bigint) as requests,
    cast(sum(requests - ended_requests) as bigint) as censored_requests,
    max(support_tokens) as support_tokens,
    sum(before_ratio * (output_tokens - before_tokens) order by output_tokens)
    filter (where output_tokens <= support_tokens) as survival_mean_tokens,
    min(output_tokens) filter (where survival_ratio <= 0.5) as survival_p50_tokens,
    min(output_tokens) filter (where survival_ratio <= 0.1) as survival_p90_tokens,
    min(output_tokens) filter (where survival_ratio <= 0.05) as survival_p95_tokens,
    min(output_tokens) filter (where survival_ratio <= 0.01) as survival_p99_tokens,
    coalesce(min(survival_ratio), 1) as beyond_ratio,
    if(coalesce(min(survival_ratio), 1) > 0, 'assumed', 'measured') as provenance
from steps
group by week, deployment_id, stratum_low_tokens, stratum_high_tokens
order by week, deployment_id, stratum_low_tokens
