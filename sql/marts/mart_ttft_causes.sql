-- One row per week, deployment, kind and cause: why the P95 time to first token moved by over 20 % since last week.
-- grain: week, deployment_id, kind, cause
-- kind 'split' is the logged change of the slowest 5 %; kind 'cause' what replays with one factor swapped give.
select
    plan.week, plan.deployment_id, plan.kind, plan.cause, plan.previous_week,
    plan.previous_ttft_p95_s, plan.ttft_p95_s, plan.part_s,
    row_number() over (
        partition by plan.week, plan.deployment_id, plan.kind order by abs(plan.part_s) desc, plan.cause asc
    ) = 1 as is_first,
    plan.provenance
from plan_ttft_causes as plan
inner join mart_coverage on plan.week = mart_coverage.week and plan.previous_week = mart_coverage.previous_week
where plan.scenario_id = 'today'
order by plan.week, plan.deployment_id, plan.kind, plan.cause
