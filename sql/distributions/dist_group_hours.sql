-- One row per week, grouping (model or tenant), member and hour of the week in the planning time zone: its rhythm.
-- grain: week, grouping_name, member, hour_of_week
-- incremental: week
with quarters as materialized (
    select week, model, tenant, time_bucket(interval '15 minutes', arrived_at) as quarter_at, count(*) as requests
    from fct_requests
    where served_by <> 'gateway_cache'
    group by all
),

members as (
    select week, 'model' as grouping_name, model as member, quarter_at, requests from quarters
    union all
    select week, 'tenant' as grouping_name, tenant as member, quarter_at, requests from quarters
)

select
    members.week, members.grouping_name, coalesce(members.member, '(none)') as member, raw_hours.hour_of_week,
    cast(sum(members.requests) as bigint) as requests
from members
inner join raw_hours on members.quarter_at = raw_hours.quarter_at
group by all
order by members.week, members.grouping_name, member, raw_hours.hour_of_week
