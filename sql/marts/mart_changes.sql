-- One row per week and deployment: what changed since the previous week, and the largest mover in words.
-- grain: week, deployment_id
with figures as (
    select
        prompts.week, prompts.deployment_id,
        prompts.requests + prompts.unknown_requests as requests,
        prompts.prompt_mean_tokens, outputs.output_mean_tokens, prompts.prompt_total_tokens, outputs.output_total_tokens,
        held.kv_time_byte_s
    from dist_prompt_tokens as prompts
    inner join dist_output_tokens as outputs
        on prompts.week = outputs.week and prompts.deployment_id = outputs.deployment_id and outputs.model = '(all)'
    left join mart_kv_time as held
        on prompts.week = held.week and prompts.deployment_id = held.deployment_id
        and held.tenant = '(all)' and held.phase = '(all)'
    where prompts.model = '(all)'
),

changes as (
    select
        this.*, mart_coverage.previous_week,
        this.requests / nullif(earlier.requests, 0) - 1 as requests_change_factor,
        this.prompt_mean_tokens / nullif(earlier.prompt_mean_tokens, 0) - 1 as prompt_change_factor,
        this.output_mean_tokens / nullif(earlier.output_mean_tokens, 0) - 1 as output_change_factor,
        this.kv_time_byte_s / nullif(earlier.kv_time_byte_s, 0) - 1 as kv_time_change_factor
    from figures as this
    inner join mart_coverage on this.week = mart_coverage.week
    left join figures as earlier
        on mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
),

movers as (
    select
        *,
        list_max([
            {'size': abs(ln(greatest(1 + coalesce(requests_change_factor, 0), 1e-9))),
                'word': 'requests', 'change': requests_change_factor},
            {'size': abs(ln(greatest(1 + coalesce(prompt_change_factor, 0), 1e-9))),
                'word': 'the mean prompt', 'change': prompt_change_factor},
            {'size': abs(ln(greatest(1 + coalesce(output_change_factor, 0), 1e-9))),
                'word': 'the mean output', 'change': output_change_factor}
        ]) as mover
    from changes
)

select
    week, deployment_id, previous_week, requests, prompt_mean_tokens, output_mean_tokens,
    prompt_total_tokens, output_total_tokens, kv_time_byte_s,
    requests_change_factor, prompt_change_factor, output_change_factor, kv_time_change_factor,
    case
        when previous_week is null then 'no earlier week to compare with'
        when requests_change_factor is null then 'no requests in ' || previous_week
        when mover.size < 0.005 then 'as in ' || previous_week
        else format('largest mover since {}: {}, {} {:.0f} %', previous_week, mover.word,
            case when mover.change > 0 then 'up' else 'down' end, 100 * abs(mover.change))
    end as change_text
from movers
order by week, deployment_id
