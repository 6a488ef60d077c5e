-- When were the busiest 5 minutes of each model? (latest week)
-- no rows: no request of the latest week reached a backend
with windows as (
    select
        model,
        time_bucket(interval '5 minutes', arrived_at) as window_started_at,
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(output_tokens) as output_tokens
    from fct_requests
    where served_by <> 'gateway_cache' and week = (select max(dist_coverage.week) from dist_coverage)
    group by all
)

select
    model, window_started_at, requests,
    requests / 300 as arrivals_requests_per_s,
    prompt_tokens, output_tokens
from windows
qualify row_number() over (partition by model order by requests desc, window_started_at asc) = 1
order by requests desc, model asc
