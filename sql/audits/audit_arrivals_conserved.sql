-- One row per week and table whose arrivals are not those of the facts: none may exist.
-- grain: relation, week
with wanted as (
    select week, cast(sum(backend_requests) as bigint) as requests from fct_arrival_seconds group by week
),

found as (
    select 'dist_hours' as relation, week, sum(requests) as requests
    from dist_hours where deployment_id = '(all)' group by week
    union all
    select 'dist_arrival_windows' as relation, week, sum(requests) as requests
    from dist_arrival_windows where deployment_id = '(all)' group by week
    union all
    select 'dist_group_arrivals ' || grouping_name || ' ' || window_s as relation, week, sum(requests) as requests
    from dist_group_arrivals group by all
    union all
    select 'mart_hours' as relation, week, sum(requests) as requests
    from mart_hours where deployment_id = '(all)' group by week
    union all
    select 'mart_arrival_windows' as relation, week, sum(requests) as requests
    from mart_arrival_windows where deployment_id = '(all)' group by week
)

select found.relation, found.week, found.requests, wanted.requests as expected
from found
inner join wanted on found.week = wanted.week
where found.requests <> wanted.requests
