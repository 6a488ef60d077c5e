-- One row per week, deployment and scenario, today's included: what it does to the traffic, beside today.
-- grain: week, deployment_id, scenario_id
with today as (
    select * from plan_scenarios where scenario_id = 'today'
)

select
    plan.run_id, plan.week, plan.deployment_id, plan.scenario_id, plan.position, plan.settings_text, plan.why_text,
    plan.swept_setting, plan.swept_value, plan.curve_measure, plan.is_knee, plan.is_first_cut,
    plan.outcome, plan.reason_text, plan.verdict, plan.binding_demand, plan.is_slo_reachable, plan.slo_floor_text,
    plan.offered_requests, plan.rejected_requests, plan.prompt_too_long_requests, plan.requested_too_long_requests,
    plan.clamped_requests, plan.clamp_saves_requests, plan.compacted_requests, plan.lost_requests, plan.sessions_cut,
    plan.truncated_requests,
    plan.lost_cut_tokens, plan.lost_truncated_tokens,
    plan.lost_cut_tokens + plan.lost_truncated_tokens + plan.sub_agent_lost_tokens as lost_output_tokens,
    plan.sub_agent_rejected_requests + plan.sub_agent_lost_requests as sub_agent_lost_requests,
    plan.extendable_requests, plan.extension_max_tokens, plan.served_output_ratio,
    plan.queue_refused_requests, plan.timed_out_requests, plan.unsent_requests, plan.preempted_requests,
    plan.kv_time_byte_s, plan.residency_mean_bytes, plan.residency_peak_bytes, plan.kv_peak_ratio,
    plan.ttft_p50_s, plan.ttft_p95_s, plan.ttft_p99_s, plan.tpot_p50_s, plan.tpot_p95_s, plan.tpot_p99_s,
    plan.e2e_p50_s, plan.e2e_p95_s, plan.e2e_p99_s, plan.attainment_ratio,
    plan.fleet_gpus, plan.needed_gpus, plan.fleet_cost_usd_per_hour, plan.cost_usd_per_hour,
    plan.missed_requests, plan.paid_gpu_s,
    plan.fixed_fleet_replicas, plan.fixed_fleet_gpu_s, plan.fixed_fleet_missed_requests,
    plan.paid_gpu_s - plan.fixed_fleet_gpu_s as autoscaled_change_gpu_s,
    plan.missed_requests - plan.fixed_fleet_missed_requests as autoscaled_change_requests,
    autoscaled_change_gpu_s / 3600 * plan.fleet_cost_usd_per_hour / nullif(plan.fleet_gpus, 0)
        as autoscaled_change_usd,
    plan.missed_requests - today.missed_requests as missed_change_requests,
    plan.rejected_requests - today.rejected_requests as rejected_change_requests,
    plan.lost_requests - today.lost_requests as lost_change_requests,
    plan.sessions_cut - today.sessions_cut as cut_change_sessions,
    plan.truncated_requests - today.truncated_requests as truncated_change_requests,
    plan.sub_agent_rejected_requests + plan.sub_agent_lost_requests + plan.sub_agent_truncated_requests
    - (today.sub_agent_rejected_requests + today.sub_agent_lost_requests + today.sub_agent_truncated_requests)
        as sub_agent_loss_change_requests,
    lost_output_tokens
    - (today.lost_cut_tokens + today.lost_truncated_tokens + today.sub_agent_lost_tokens) as lost_change_tokens,
    plan.kv_time_byte_s - today.kv_time_byte_s as kv_time_change_byte_s,
    plan.residency_peak_bytes - today.residency_peak_bytes as residency_change_bytes,
    plan.ttft_p95_s - today.ttft_p95_s as ttft_p95_change_s,
    plan.tpot_p95_s - today.tpot_p95_s as tpot_p95_change_s,
    plan.e2e_p95_s - today.e2e_p95_s as e2e_p95_change_s,
    plan.attainment_ratio - today.attainment_ratio as attainment_change_ratio,
    plan.needed_gpus - today.needed_gpus as needed_change_gpus,
    plan.cost_usd_per_hour - today.cost_usd_per_hour as cost_change_usd_per_hour,
    plan.step_time_source, plan.provenance
from plan_scenarios as plan
left join today on plan.week = today.week and plan.deployment_id = today.deployment_id
order by plan.week, plan.deployment_id, plan.position
