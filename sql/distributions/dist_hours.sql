-- One row per week, deployment and hour of the week in the planning time zone: the weekly rhythm.
-- grain: week, deployment_id, hour_of_week
-- incremental: week
with quarters as (
    select
        week, deployment_id,
        time_bucket(interval '15 minutes', second_at) as quarter_at,
        sum(backend_requests) as requests
    from fct_arrival_seconds
    where backend_requests > 0
    group by all
)

select
    quarters.week,
    coalesce(quarters.deployment_id, '(all)') as deployment_id,
    raw_hours.hour_of_week,
    cast(sum(quarters.requests) as bigint) as requests
from quarters
inner join raw_hours on quarters.quarter_at = raw_hours.quarter_at
group by
    grouping sets (
        (quarters.week, quarters.deployment_id, raw_hours.hour_of_week), (quarters.week, raw_hours.hour_of_week)
    )
order by quarters.week, deployment_id, raw_hours.hour_of_week
