-- One row per week and deployment with a plan: GPUs needed against GPUs now, what binds, what changed.
-- grain: week, deployment_id
with demands as (
    select
        week, deployment_id,
        max(demand_replicas) filter (where demand = 'kv') as kv_replicas,
        max(demand_replicas) filter (where demand = 'compute') as compute_replicas,
        max(demand_replicas) filter (where demand = 'latency') as latency_replicas
    from plan_replicas
    where scenario_id = 'today'
    group by week, deployment_id
)

select
    plan.week, plan.deployment_id, plan.run_id,
    plan.now_gpus, plan.needed_gpus, plan.low_gpus, plan.high_gpus, plan.needed_gpus - plan.now_gpus as short_gpus,
    plan.horizon_gpus, plan.envelope_gpus, plan.now_replicas, plan.needed_replicas,
    demands.kv_replicas, demands.compute_replicas, demands.latency_replicas,
    plan.demand as binding_demand, plan.utilization_factor,
    1 / nullif(plan.utilization_factor, 0) - 1 as headroom_factor,
    plan.headroom_ratio, plan.is_one_lost_ok, plan.is_censored,
    plan.resident_requests, plan.sustained_low_requests_per_s, plan.sustained_high_requests_per_s,
    plan.slo_missed_factor,
    plan.residency_peak_bytes, plan.residency_peak_observed_bytes, plan.residency_max_bytes,
    plan.kv_capacity_bytes, plan.kv_capacity_bytes * plan.now_replicas as now_capacity_bytes,
    plan.planned_batch_requests, plan.step_s, plan.busiest_hour_at, plan.compute_gpu_s_per_s,
    plan.cost_usd_per_hour, plan.now_cost_usd_per_hour,
    plan.cost_usd_per_hour - plan.now_cost_usd_per_hour as cost_change_usd_per_hour,
    plan.output_cost_usd_per_million_tokens, plan.session_cost_usd,
    now.requests, now.prompt_total_tokens, now.output_total_tokens, now.kv_time_byte_s,
    now.previous_week, earlier.needed_gpus as previous_needed_gpus,
    plan.needed_gpus - earlier.needed_gpus as gpus_change_gpus,
    now.requests_change_factor, now.prompt_change_factor, now.output_change_factor, now.kv_time_change_factor,
    action.action_text, action.is_slo_reachable, action.is_slo_assumed, action.slo_floor_text, action.usable_requests,
    mart_binding.binding_text, now.change_text, counted.count_text, action.confidence_text,
    plan.envelope_reason, plan.provenance
from plan_replicas as plan
inner join demands on plan.week = demands.week and plan.deployment_id = demands.deployment_id
left join mart_binding on plan.week = mart_binding.week and plan.deployment_id = mart_binding.deployment_id
left join mart_action as action on plan.week = action.week and plan.deployment_id = action.deployment_id
left join mart_count_changes as counted on plan.week = counted.week and plan.deployment_id = counted.deployment_id
left join mart_changes as now on plan.week = now.week and plan.deployment_id = now.deployment_id
left join plan_replicas as earlier
    on
        now.previous_week = earlier.week and plan.deployment_id = earlier.deployment_id
        and plan.scenario_id = earlier.scenario_id and earlier.is_binding
where plan.scenario_id = 'today' and plan.is_binding
order by plan.week, plan.deployment_id
