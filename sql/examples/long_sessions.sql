-- Which part do sessions of over 100 turns have in the traffic? (by week and deployment)
-- no rows: no request names a session
select
    week, deployment_id,
    count(*) as sessions,
    count(*) filter (where turns_requests > 100) as long_sessions,
    max(turns_requests) as turns_max_requests,
    coalesce(sum(turns_requests) filter (where turns_requests > 100), 0) / sum(turns_requests) as turns_share_ratio,
    coalesce(sum(output_tokens) filter (where turns_requests > 100), 0) / sum(output_tokens) as output_share_ratio,
    max(prompt_max_tokens) filter (where turns_requests > 100) as prompt_max_tokens
from fct_sessions
group by week, deployment_id
order by week, deployment_id
