-- One row per week, deployment and policy: what keeping KV through tool waits costs, and what it saves against today's.
-- grain: week, deployment_id, policy
select
    plan.week, plan.deployment_id, plan.policy, plan.ttl_s, plan.break_even_s, plan.pool_full_ratio,
    plan.held_byte_s, plan.held_gpu_s, plan.recompute_gpu_s, plan.saving_gpu_s, plan.saving_usd,
    plan.saving_gpu_s / nullif(mart_coverage.covered_s, 0) as saving_gpu_s_per_s,
    plan.saving_usd / nullif(mart_coverage.covered_s / 3600, 0) as saving_usd_per_hour,
    plan.is_today, plan.is_best,
    case plan.policy
        when 'lru' then 'keep KV until the room is needed'
        when 'drop' then 'drop KV when a tool is called'
        when 'keep' then 'pin KV until the tool returns'
        when 'offload' then 'move KV to the host while a tool runs'
        when 'ttl' then format('pin KV for up to {} s of a tool wait', figure_text(plan.ttl_s))
        else plan.policy
    end as policy_text,
    plan.note, plan.provenance
from plan_tool_wait_policies as plan
inner join mart_coverage on plan.week = mart_coverage.week
where plan.scenario_id = 'today'
order by plan.week, plan.deployment_id, plan.policy
