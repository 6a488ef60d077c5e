-- One row per week, deployment and thing about its plan that the reader must know.
-- grain: week, deployment_id, code
with binding as (
    select plan.*, coalesce(deployments.memory_provenance = 'assumed', false) as is_memory_assumed
    from plan_replicas as plan
    left join dim_deployments as deployments on plan.deployment_id = deployments.deployment_id
    where plan.scenario_id = 'today' and plan.is_binding
),

answered as (
    select *, requests - failed_requests as answered_requests from dist_latency
    where deployment_id not in ('(all)', '(none)')
),

pools as (
    select
        held.week, held.deployment_id, answered.e2e_timed_requests >= 0.5 * answered.answered_requests as is_seen,
        count(*) as windows, max(held.residency_mean_bytes / held.capacity_bytes) as worst_factor
    from mart_residency as held
    inner join answered on held.week = answered.week and held.deployment_id = answered.deployment_id
    where held.pace = 'observed' and held.phase = '(all)' and held.residency_mean_bytes > held.capacity_bytes
    group by all
)

select
    week, deployment_id, if(timed_requests = 0, 'times_modelled', 'some_times_modelled') as code,
    if(timed_requests = 0, 'the log has no times: residency and KV·time are modelled', format(
        'of {:,} answered requests {:,} have no time to the first token and {:,} no response time: modelled',
        answered_requests, answered_requests - ttft_timed_requests, answered_requests - e2e_timed_requests
    )) as text
from answered where least(ttft_timed_requests, e2e_timed_requests) < answered_requests
union all
select
    week, deployment_id, 'no_interval' as code,
    'the GPU count has no interval: fewer than 5 days are covered or none was computed' as text
from binding where low_gpus is null and demand <> 'none'
union all
select
    week, deployment_id, 'censored' as code,
    'today''s fleet limits what the log can show: observed residency may not set the count' as text
from binding where is_censored
union all
select
    week, deployment_id, 'residency_above_pool' as code,
    format(
        '{} residency is above the pool in {:,} window{}, up to {:.2f} times: {}',
        if(is_seen, 'observed', 'modelled'), windows, if(windows = 1, '', 's'), worst_factor,
        if(is_seen, 'preemption or a wrong capacity', 'this traffic does not fit today''s fleet')
    ) as text
from pools
union all
select
    week, deployment_id,
    case when demand = 'kv' then 'memory_assumed' else 'memory_assumed_not_binding' end as code,
    'KV capacity rests on assumed memory figures: give kv_cache_memory_bytes (fleet file, [deployments.engine])' as text
from binding where is_memory_assumed
union all
select week, '(all)' as deployment_id, 'no_plan' as code, 'this week has no plan yet: run kvledger plan' as text
from mart_coverage where not exists (select 1 from binding where binding.week = mart_coverage.week)
order by week, deployment_id, code
