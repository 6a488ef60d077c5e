-- One row per week, hour and grouping whose arrivals are not those of the whole in that hour: none may exist.
-- grain: relation, week, hour_of_week
with wanted as (
    select week, hour_of_week, requests from dist_hours where deployment_id = '(all)'
),

found as (
    select 'dist_group_hours ' || grouping_name as relation, week, hour_of_week, sum(requests) as requests
    from dist_group_hours group by all
    union all
    select 'dist_hours' as relation, week, hour_of_week, sum(requests) as requests
    from dist_hours where deployment_id <> '(all)' group by all
)

select found.relation, found.week, found.hour_of_week, found.requests, wanted.requests as expected
from found
left join wanted on found.week = wanted.week and found.hour_of_week = wanted.hour_of_week
where found.requests is distinct from wanted.requests
