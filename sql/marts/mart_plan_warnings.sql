-- One row per week, deployment and thing about its plan that the reader must know.
-- grain: week, deployment_id, code
with binding as (
    select * from plan_replicas where scenario_id = 'today' and is_binding
),

pools as (
    select
        week, deployment_id,
        count(*) filter (where residency_mean_bytes > capacity_bytes) as windows,
        max(residency_mean_bytes / capacity_bytes) as worst_factor
    from mart_residency
    where pace = 'observed' and phase = '(all)'
    group by week, deployment_id
)

select
    week, deployment_id, 'times_modelled' as code,
    case
        when timed_requests = 0 then 'the log has no times: residency and KV·time are modelled'
        else format(
            'of {:,} answered requests {:,} have no times: theirs are modelled',
            requests - failed_requests, requests - failed_requests - timed_requests
        )
    end as text
from dist_latency
where timed_requests < requests - failed_requests and deployment_id not in ('(all)', '(none)')
union all
select
    week, deployment_id, 'no_interval' as code,
    'the GPU count has no interval: fewer than 5 days are covered or none was computed' as text
from binding
where low_gpus is null
union all
select
    week, deployment_id, 'censored' as code,
    'today''s fleet limits what the log can show: observed residency may not set the count' as text
from binding
where is_censored
union all
select
    week, deployment_id, 'residency_above_pool' as code,
    format(
        'observed residency is above the pool in {:,} windows, up to {:.2f} times: preemption or a wrong capacity',
        windows, worst_factor
    ) as text
from pools
where windows > 0
union all
select
    binding.week, binding.deployment_id, 'memory_assumed' as code,
    'KV capacity rests on assumed memory figures: give kv_cache_memory_bytes to replace them' as text
from binding
inner join dim_deployments on binding.deployment_id = dim_deployments.deployment_id
where dim_deployments.memory_provenance = 'assumed'
union all
select week, '(all)' as deployment_id, 'no_plan' as code, 'this week has no plan yet: run kvledger plan' as text
from mart_coverage
where not exists (select 1 from binding where binding.week = mart_coverage.week)
order by week, deployment_id, code
