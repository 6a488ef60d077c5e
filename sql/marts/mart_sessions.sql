-- One row per week and deployment: sessions, their turns, contexts and spans.
-- grain: week, deployment_id
select
    week, deployment_id, sessions, single_sessions,
    turns_mean_requests, turns_p50_requests, turns_p90_requests, turns_p99_requests, turns_max_requests,
    prompt_max_p50_tokens, prompt_max_p99_tokens, duration_p50_s, duration_p99_s,
    tool_wait_s, user_wait_s, overlap_sessions
from dist_sessions
order by week, deployment_id
