-- One row per planned figure outside its bounds: none may exist.
-- grain: relation, week, deployment_id, what
with rising as (
    select
        week, deployment_id, measure, value_s,
        lag(value_s) over (
            partition by week, deployment_id, scenario_id, source, measure order by quantile_ratio
        ) as lower_s
    from plan_latency
)

select 'plan_latency' as relation, week, deployment_id, measure as what, value_s as found, lower_s as bound
from rising
where value_s < lower_s * (1 - 1e-9)
union all
select 'plan_batch_curve' as relation, week, deployment_id, 'tpot_s' as what, tpot_s as found, 0 as bound
from plan_batch_curve
where not (batch_requests > 0 and throughput_tokens_per_s > 0 and tpot_s > 0)
union all
select
    'plan_rate_curve' as relation, week, deployment_id, 'rate_requests_per_s' as what,
    rate_requests_per_s as found, 0 as bound
from plan_rate_curve
where not (rate_requests_per_s > 0 and fleet_replicas > 0)
union all
select 'plan_forecasts' as relation, week, deployment_id, horizon_week as what, value_gpus as found, low_gpus as bound
from plan_forecasts
where not value_gpus between low_gpus and high_gpus or horizon_week <= week
union all
select 'plan_forecasts' as relation, week, deployment_id, 'order_by_date' as what, null as found, null as bound
from plan_forecasts
where order_by_date > run_out_date
union all
select
    'plan_changes' as relation, week, deployment_id, 'kv_time_part_byte_s' as what,
    sum(kv_time_part_byte_s) as found, max(kv_time_byte_s - previous_kv_time_byte_s) as bound
from plan_changes
group by week, deployment_id, scenario_id
having abs(found - bound) > 1e-6 * greatest(max(kv_time_byte_s), max(previous_kv_time_byte_s), 1)
