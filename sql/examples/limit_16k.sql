-- What share of requests would max_model_len = 16384 reject, and why? (by week and deployment)
-- The engine refuses P >= L; a front end that adds the caller's own limit refuses P + requested > L as well.
-- no rows: of no request is the number of its prompt tokens known
select
    week, deployment_id,
    count(*) as requests,
    count(*) filter (where prompt_tokens >= 16384) as prompt_too_long_requests,
    count(*) filter (where prompt_tokens < 16384 and prompt_tokens + requested_output_tokens > 16384)
        as requested_too_long_requests,
    prompt_too_long_requests / requests as prompt_too_long_ratio,
    requested_too_long_requests / requests as requested_too_long_ratio
from fct_requests
where served_by <> 'gateway_cache' and prompt_tokens is not null
group by week, deployment_id
order by week, deployment_id
