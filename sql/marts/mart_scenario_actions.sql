-- One row per week, deployment and scenario: what it would save and risk, whether it is worth doing, and else why not.
-- grain: week, deployment_id, scenario_id
with asked as (
    select scenarios.*, decided.needed_gpus as decided_gpus
    from mart_scenarios as scenarios
    left join mart_decision as decided
        on scenarios.week = decided.week and scenarios.deployment_id = decided.deployment_id
    where scenarios.scenario_id <> 'today'
),

counted as (
    select
        *,
        contains(', ' || settings_text, ', gpu=') as is_other_gpu,
        (
            greatest(rejected_change_requests, 0) + greatest(lost_change_requests, 0)
            + greatest(truncated_change_requests, 0) + greatest(sub_agent_loss_change_requests, 0)
        ) / nullif(offered_requests, 0) as loss_ratio,
        greatest(-attainment_change_ratio, 0) as missed_ratio,
        if(is_other_gpu, null, -needed_change_gpus) as saving_gpus,
        -cost_change_usd_per_hour as saving_usd_per_hour,
        case
            when outcome <> 'answered' then outcome
            when regexp_matches(settings_text, '(^|, )(headroom_ratio|spare_replicas|ttft_p95_s|tpot_p95_s|window)=')
                then 'changes what is promised, not how it is kept'
            when not is_lever(settings_text) then 'changes what is asked or assumed, not how it is served'
            when coalesce(decided_gpus <> needed_gpus - needed_change_gpus, true) then 'held against another plan'
            when not coalesce(is_slo_reachable, false) then 'no number of replicas keeps the objectives'
            when loss_ratio > action_loss_ratio()
                then format('refuses or cuts {:.3g} % of the requests', 100 * loss_ratio)
            when missed_ratio > action_loss_ratio()
                then format('brings {:.3g} % of the requests out of the objectives', 100 * missed_ratio)
            when saving_usd_per_hour < 0 then 'costs more'
            when coalesce(saving_gpus, 0) <= 0 and coalesce(saving_usd_per_hour, 0) <= 0 then 'saves nothing'
        end as ruled_out_text
    from asked
)

select
    week, deployment_id, scenario_id, position, settings_text,
    ruled_out_text is null and row_number() over (
        partition by week, deployment_id, ruled_out_text is null
        order by saving_usd_per_hour desc nulls last, saving_gpus desc nulls last, loss_ratio asc, position asc
    ) = 1 as is_worth_doing,
    coalesce(ruled_out_text, if(is_worth_doing, null, 'another saves more')) as against_text,
    saving_gpus, saving_usd_per_hour, loss_ratio, missed_ratio, action_loss_ratio() as loss_bound_ratio,
    format('{:,} GPUs needed, not {:,}', needed_gpus, decided_gpus) as freed_text,
    concat_ws(
        ', ',
        if(loss_ratio = 0, 'no', format('{:.2f} % of', 100 * loss_ratio)) || ' requests refused or cut',
        if(missed_ratio >= 0.0005, format('{:.1f} % more miss the objectives', 100 * missed_ratio), null),
        if(contains(settings_text, '_dtype='), 'answers may change', null),
        if(is_other_gpu, 'step times there are less sure', null),
        if(swept_setting is not null, 'latency by closed forms: replay with --set first', null)
    ) as risk_text,
    provenance
from counted
order by week, deployment_id, position
