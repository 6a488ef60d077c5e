-- One row per week, deployment and five minutes: arrivals, their tokens and attempts in flight.
-- grain: week, deployment_id, window_started_at
select
    week, deployment_id, window_started_at,
    requests,
    requests / 300 as arrivals_requests_per_s,
    prompt_tokens, output_tokens, concurrency_mean_requests
from dist_arrival_windows
order by week, deployment_id, window_started_at
