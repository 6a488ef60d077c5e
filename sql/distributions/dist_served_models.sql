-- One row per week, deployment and model: requests by the name they asked for, '(none)' where nobody serves it.
-- grain: week, deployment_id, model
-- incremental: week
select
    week,
    coalesce(deployment_id, '(none)') as deployment_id,
    coalesce(model, '(none)') as model,
    count(*) as requests
from fct_requests
group by all
order by week, deployment_id, model
