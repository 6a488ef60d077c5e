-- One row per gap between two requests of one agent in a session: a tool wait or the user's think time.
-- grain: source, request_id
-- incremental: session
with asked as (
    select
        *,
        not is_failed and served_by = 'backend' as is_answered,
        -- a response that failed delivered no calls: what follows is a retry or the user's
        not is_failed and (
            coalesce(tool_calls, 0) > 0
            or coalesce(finish_reason in ('tool_calls', 'tool_use', 'function_call'), false)
        ) as has_calls,
        is_failed or tool_calls is not null or finish_reason is not null as is_known
    from fct_requests
    where session_id is not null
),

gaps as (
    select
        *,
        lag(request_id) over agent as prior_request_id,
        lag(ended_at) over agent as prior_ended_at,
        lag(has_calls) over agent as prior_has_calls,
        lag(is_known) over agent as is_prior_known,
        lag(case when is_answered then { 'tokens': prompt_tokens + output_tokens } end ignore nulls) over agent as held
    from asked
    window agent as (partition by source, session_id, agent_id order by turn, arrived_at, request_id)
),

told as (
    select
        *,
        epoch(arrived_at - prior_ended_at) as stamped_wait_s,
        case when stamped_wait_s < 0 then 0 else stamped_wait_s end as inferred_wait_s,
        case
            when logged_tool_wait_s is not null then true
            when tool_results is null then prior_has_calls
            when is_prior_known then prior_has_calls and tool_results > 0
            else tool_results > 0
        end as is_tool,
        logged_tool_wait_s is not null or (tool_results is not null and is_prior_known) as is_logged
    from gaps
    where prior_request_id is not null
)

select
    session_id, agent_id, turn, source, request_id, prior_request_id,
    week, arrived_at, prior_ended_at,
    deployment_id, model, tenant,
    case when is_tool then 'tool' else 'user' end as kind,
    case when is_logged then 'logged' else 'inferred' end as kind_source,
    coalesce(logged_tool_wait_s, inferred_wait_s) as wait_s,
    stamped_wait_s, logged_tool_wait_s,
    held['tokens'] as prior_context_tokens,
    coalesce(logged_tool_wait_s is null and stamped_wait_s < 0, false) as is_overlap,
    coalesce(abs(logged_tool_wait_s - inferred_wait_s) > 1, false) as is_disagreement
from told
