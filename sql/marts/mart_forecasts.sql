-- One row per week, deployment and week ahead: GPUs forecast with a 90 % interval, and what that week then asked for.
-- grain: week, deployment_id, horizon_week
with facts as (
    select
        plan.week, plan.deployment_id,
        plan.demand_replicas * deployments.gpus_per_replica_gpus as fact_gpus
    from plan_replicas as plan
    inner join dim_deployments as deployments on plan.deployment_id = deployments.deployment_id
    where plan.scenario_id = 'today' and plan.is_binding
)

select
    plan.week, plan.deployment_id, plan.horizon_week, plan.value_gpus, plan.low_gpus, plan.high_gpus, facts.fact_gpus,
    facts.fact_gpus between plan.low_gpus and plan.high_gpus as is_held,
    plan.run_out_date, plan.order_by_date, plan.provenance
from plan_forecasts as plan
left join facts on plan.horizon_week = facts.week and plan.deployment_id = facts.deployment_id
where plan.scenario_id = 'today' and plan.measure = 'gpus'
order by plan.week, plan.deployment_id, plan.horizon_week
