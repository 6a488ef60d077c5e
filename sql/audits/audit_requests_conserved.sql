-- One row per week whose requests, attempts or arrivals get lost between two tables: none may exist.
-- grain: week, what
with attempts as (
    select week, count(*) as expected from stg_requests where is_backend group by week
),

attempts_kept as (
    select week, count(*) as found from fct_attempts group by week
),

requests as (
    select week, count(*) as expected, count(*) filter (where served_by <> 'gateway_cache') as backend_expected
    from fct_requests
    group by week
),

arrivals as (
    select week, window_s, requests as found from dist_arrivals where deployment_id = '(all)'
),

lengths as (
    select week, sum(requests) as found from dist_length_histogram where deployment_id = '(all)' and measure = 'prompt'
    group by week
)

select attempts.week, 'fct_attempts' as what, attempts.expected, attempts_kept.found
from attempts
left join attempts_kept on attempts.week = attempts_kept.week
where attempts.expected is distinct from attempts_kept.found
union all
select requests.week, 'dist_arrivals' as what, requests.backend_expected, arrivals.found
from requests
cross join (values (1), (10), (60), (300), (3600)) as sizes (window_s)
left join arrivals on requests.week = arrivals.week and sizes.window_s = arrivals.window_s
where requests.backend_expected is distinct from coalesce(arrivals.found, 0)
union all
select requests.week, 'dist_coverage' as what, requests.expected, dist_coverage.requests
from requests
left join dist_coverage on requests.week = dist_coverage.week
where requests.expected is distinct from dist_coverage.requests
union all
select prompts.week, 'dist_length_histogram' as what, prompts.requests, lengths.found
from dist_prompt_tokens as prompts
left join lengths on prompts.week = lengths.week
where prompts.deployment_id = '(all)' and prompts.requests <> coalesce(lengths.found, 0)
