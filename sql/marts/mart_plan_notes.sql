-- One row per week, deployment and demand whose count needs a word: what could not be met or was left out.
-- grain: week, deployment_id, code
select week, deployment_id, 'plan_' || demand as code, note as text
from plan_replicas
where scenario_id = 'today' and note is not null
order by week, deployment_id, code
