-- One row per week and deployment with a plan: what to do about its GPUs, and how far to trust the count, in words.
-- grain: week, deployment_id
with known as (
    select
        plan.*,
        assumed.code is not null as is_slo_assumed,
        coalesce(held.attempts_requests, 0) as usable_requests,
        coalesce(asked.requests, 0) as requests,
        plan.now_gpus - greatest(plan.needed_gpus, plan.high_gpus) as spare_gpus,
        mart_coverage.covered_s, mart_coverage.coverage_text
    from plan_replicas as plan
    left join plan_notes as assumed
        on
            plan.week = assumed.week and plan.deployment_id = assumed.deployment_id
            and plan.scenario_id = assumed.scenario_id and assumed.code = 'slo_assumed'
    left join mart_kv_time as held
        on
            plan.week = held.week and plan.deployment_id = held.deployment_id
            and held.tenant = '(all)' and held.phase = '(all)'
    left join dist_latency as asked on plan.week = asked.week and plan.deployment_id = asked.deployment_id
    left join mart_coverage on plan.week = mart_coverage.week
    where plan.scenario_id = 'today' and plan.is_binding
)

select
    week, deployment_id, usable_requests, is_slo_reachable, is_slo_assumed, slo_floor_text,
    regexp_replace(
        case
            when demand = 'none' and requests = 0 then 'no traffic this week'
            when demand = 'none' then 'no usable traffic this week'
            when needed_gpus > now_gpus
                then
                    format('add {} GPUs', needed_gpus - now_gpus)
                    || if(not is_slo_reachable, '; even then no number of replicas meets the objective', '')
            when not is_slo_reachable then 'no number of replicas meets the objective'
            when high_gpus is not null and spare_gpus > 0 then format('could release {} GPUs', spare_gpus)
            when high_gpus is null and spare_gpus > 0 then 'keep, too little seen to release'
            else 'keep'
        end, ' 1 GPUs', ' 1 GPU'
    ) as action_text,
    case
        when demand = 'none' then 'not sized'
        when not is_slo_reachable then format('no interval (the count rests on {})', rests_on_text)
        when low_gpus < high_gpus then format('{} to {} GPUs (90 % interval)', low_gpus, high_gpus)
        when low_gpus = high_gpus then format('{} GPU{} (90 % interval)', low_gpus, if(low_gpus = 1, '', 's'))
        when covered_s < 432000 then format('no interval ({}, 5 days are needed)', coverage_text)
        else 'no interval'
    end || ', ' || provenance
    || if(is_slo_assumed, ', objective assumed', '') || if(is_censored, ', censored by today''s fleet', '')
        as confidence_text
from known
order by week, deployment_id
