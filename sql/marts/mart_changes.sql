-- One row per week and deployment: what changed since the previous week, and the largest mover in words.
-- grain: week, deployment_id
with figures as (
    select
        demand.week, demand.deployment_id, demand.requests, prompts.previous_week,
        prompts.length_mean_tokens as prompt_mean_tokens, outputs.length_mean_tokens as output_mean_tokens,
        prompts.length_total_tokens as prompt_total_tokens, outputs.length_total_tokens as output_total_tokens,
        prompts.mean_change_factor as prompt_change_factor, outputs.mean_change_factor as output_change_factor,
        held.kv_time_byte_s, coalesce(weeks.comparison_text, 'no earlier week to compare with') as comparison_text
    from dist_latency as demand
    left join mart_coverage as weeks on demand.week = weeks.week
    inner join mart_lengths as prompts
        on
            demand.week = prompts.week and demand.deployment_id = prompts.deployment_id
            and prompts.model = '(all)' and prompts.measure = 'prompt'
    inner join mart_lengths as outputs
        on
            demand.week = outputs.week and demand.deployment_id = outputs.deployment_id
            and outputs.model = '(all)' and outputs.measure = 'output'
    left join mart_kv_time as held
        on
            demand.week = held.week and demand.deployment_id = held.deployment_id
            and held.tenant = '(all)' and held.phase = '(all)'
),

changes as (
    select
        this.*,
        this.requests / nullif(earlier.requests, 0) - 1 as requests_change_factor,
        this.kv_time_byte_s / nullif(earlier.kv_time_byte_s, 0) - 1 as kv_time_change_factor,
        list_max([
            (abs(requests_change_factor), 'requests', requests_change_factor),
            (coalesce(abs(this.prompt_change_factor), 0), 'the mean prompt', this.prompt_change_factor),
            (coalesce(abs(this.output_change_factor), 0), 'the mean output', this.output_change_factor)
        ]) as mover
    from figures as this
    left join figures as earlier
        on this.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
)

select
    week, deployment_id, previous_week, requests, prompt_mean_tokens, output_mean_tokens,
    prompt_total_tokens, output_total_tokens, kv_time_byte_s,
    requests_change_factor, prompt_change_factor, output_change_factor, kv_time_change_factor,
    case
        when previous_week is null then comparison_text
        when requests_change_factor is null then 'no requests in ' || previous_week
        when mover[1] < 0.005 then 'less than 0.5 % from ' || previous_week || ' in requests and mean lengths'
        when mover[3] >= 9
            then format('largest mover since {}: {}, {:,.0f} times as much', previous_week, mover[2], 1 + mover[3])
        else format(
            'largest mover since {}: {}, {} {:.0f} %',
            previous_week, mover[2], case when mover[3] > 0 then 'up' else 'down' end, 100 * mover[1]
        )
    end as change_text
from changes
order by week, deployment_id
