-- One row per week, deployment and action worth taking: what it saves and what it risks; the count of GPUs first.
-- grain: week, deployment_id, position
with counts as (
    select
        week, deployment_id, 1 as position, provenance, regexp_replace(action_text, '^could ', '') as action_text,
        -short_gpus as saving_gpus, -cost_change_usd_per_hour as saving_usd_per_hour, null as freed_text,
        case
            when short_gpus <= 0
                then format('{} stay, the upper end of the 90 % interval', greatest(needed_gpus, high_gpus))
            when binding_demand = 'latency' then 'until then the objective is missed at the peak'
            when utilization_factor > 1
                then format('until then the peak asks {:.2f} times what runs', utilization_factor)
            when headroom_factor >= headroom_ratio then 'until then no replica stands by for one that fails'
            else format(
                'until then {:.0f} % headroom at the peak, {:.0f} % asked', 100 * headroom_factor, 100 * headroom_ratio
            )
        end as risk_text
    from mart_decision
    where regexp_matches(action_text, '^(add|could release)')
),

scenarios as (
    select
        week, deployment_id, 2 as position, 'set ' || settings_text as action_text, provenance, saving_gpus,
        saving_usd_per_hour, freed_text, risk_text
    from mart_scenario_actions
    where is_worth_doing
),

policies as (
    select
        week, deployment_id, 3 as position, policy_text as action_text, saving_usd_per_hour, provenance,
        format('frees {} GPU·h a week', figure_text(saving_gpu_s / 3600)) as freed_text,
        coalesce(note, format('computes {} GPU·h anew a week', figure_text(recompute_gpu_s / 3600))) as risk_text
    from mart_tool_wait_policies
    where is_best and not is_today and saving_gpu_s_per_s >= action_least_gpus()
),

every_row as (
    select * from counts
    union all by name
    select * from scenarios
    union all by name
    select * from policies
)

select
    week, deployment_id, position, action_text,
    nullif(concat_ws(
        ', ', freed_text,
        if(saving_usd_per_hour < 0, 'costs $', 'saves $') || format('{:,.2f}/h', abs(saving_usd_per_hour))
    ), '') as saving_text,
    risk_text, saving_gpus, saving_usd_per_hour, provenance
from every_row
order by week, deployment_id, position
