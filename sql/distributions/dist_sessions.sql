-- One row per week and deployment: sessions, their turns, contexts and spans.
-- grain: week, deployment_id
-- incremental: week
with sessions as (
    select
        week,
        coalesce(deployment_id, '(none)') as deployment_id,
        turns_requests, prompt_max_tokens, tool_wait_s, user_wait_s, has_overlap,
        epoch(ended_at - started_at) as duration_s
    from fct_sessions
)

select
    week,
    coalesce(deployment_id, '(all)') as deployment_id,
    count(*) as sessions,
    count(*) filter (where turns_requests = 1) as single_sessions,
    avg(turns_requests) as turns_mean_requests,
    quantile_cont(turns_requests, 0.5) as turns_p50_requests,
    quantile_cont(turns_requests, 0.9) as turns_p90_requests,
    quantile_cont(turns_requests, 0.99) as turns_p99_requests,
    max(turns_requests) as turns_max_requests,
    quantile_cont(prompt_max_tokens, 0.5) as prompt_max_p50_tokens,
    quantile_cont(prompt_max_tokens, 0.99) as prompt_max_p99_tokens,
    quantile_cont(duration_s, 0.5) as duration_p50_s,
    quantile_cont(duration_s, 0.99) as duration_p99_s,
    cast(sum(cast(tool_wait_s as decimal(18, 6))) as double) as tool_wait_s,
    cast(sum(cast(user_wait_s as decimal(18, 6))) as double) as user_wait_s,
    count(*) filter (where has_overlap) as overlap_sessions
from sessions
group by grouping sets ((week, deployment_id), (week))
order by week, deployment_id
