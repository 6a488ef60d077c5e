-- How do weekdays and the weekend differ? (by week and deployment, days in planning.timezone; all 7 days count)
-- no rows: no request reached a backend
with hours as (
    select
        week, deployment_id, hour_of_week % 24 as hour_of_day, requests,
        if(hour_of_week < 120, 'weekday', 'weekend') as part_of_week,
        if(hour_of_week < 120, 5, 2) as days
    from dist_hours
)

select
    week, deployment_id, part_of_week,
    sum(requests) as requests,
    sum(requests) / any_value(days) as requests_per_day,
    max(requests) as busiest_hour_requests,
    arg_max(hour_of_day, (requests, -hour_of_day)) as busiest_hour_of_day
from hours
group by week, deployment_id, part_of_week
order by week, deployment_id, part_of_week
