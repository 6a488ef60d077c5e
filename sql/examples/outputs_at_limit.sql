-- How many outputs hit a limit, and which? (by week and deployment)
-- caller_limit: the caller's own; model_limit: prompt and output fill max_model_len; aborted: failed on the way.
-- no rows: of no output is it known that a limit or a failure ended it
select week, deployment_id, reason, requests, share_ratio, output_total_tokens
from dist_output_limits
where reason <> 'none'
order by week asc, deployment_id asc, requests desc, reason asc
