-- One row per week, deployment, fleet and multiple of its hardest window: the share of the requests in objective.
-- grain: week, deployment_id, fleet_replicas, rate_factor
select
    plan.week, plan.deployment_id, plan.fleet_replicas, plan.rate_factor, plan.is_today, plan.is_needed,
    plan.rate_requests_per_s, plan.rate_requests_per_s / plan.fleet_replicas as replica_rate_requests_per_s,
    plan.attainment_ratio, plan.attainment_ratio >= 0.95 as is_slo_ok,
    asks.busiest_hour_at,
    plan.provenance
from plan_rate_curve as plan
left join plan_replicas as asks
    on
        plan.week = asks.week and plan.deployment_id = asks.deployment_id and plan.scenario_id = asks.scenario_id
        and asks.demand = 'latency'
where plan.scenario_id = 'today'
order by plan.week, plan.deployment_id, plan.fleet_replicas, plan.rate_factor
