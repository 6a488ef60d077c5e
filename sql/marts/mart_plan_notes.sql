-- One row per week, deployment and thing to know of its plan: what it left out, assumed or could not meet, with counts.
-- grain: week, deployment_id, code
select week, deployment_id, code, affected_requests, affected_ratio, text
from plan_notes
where scenario_id = 'today'
order by week, deployment_id, code
