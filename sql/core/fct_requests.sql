-- One row per logical chat request, rejected ones and gateway cache hits included: what its user felt.
-- grain: source, request_id
-- incremental: session
with chat as not materialized (
    select * from stg_requests where is_chat
),

retried as (
    select distinct source, request_id from chat where attempt > 1
),

answered as not materialized (
    select
        *, 1 as attempts_requests, arrived_at as first_arrived_at, is_backend as has_backend,
        prompt_tokens as any_prompt_tokens
    from chat
    where
        not exists (
            select 1 from retried where retried.source = chat.source and retried.request_id = chat.request_id
        )
    union all
    select
        chat.*,
        count(*) over attempts as attempts_requests,
        min(chat.arrived_at) over attempts as first_arrived_at,
        bool_or(chat.is_backend) over attempts as has_backend,
        coalesce(chat.prompt_tokens, max(chat.prompt_tokens) over attempts) as any_prompt_tokens
    from chat
    inner join retried on chat.source = retried.source and chat.request_id = retried.request_id
    window attempts as (partition by chat.source, chat.request_id)
    qualify row_number() over (partition by chat.source, chat.request_id order by chat.attempt desc) = 1
),

placed as (
    select * from answered where session_id is null or turn is not null
    union all by name
    select
        * exclude (turn),
        row_number() over (partition by source, session_id, agent_id order by first_arrived_at, request_id) as turn
    from answered
    where session_id is not null and turn is null
)

select
    request_id, source, session_id, agent_id, turn,
    strftime(first_arrived_at, '%G-W%V') as week,
    cast(first_arrived_at as date) as arrival_date,
    first_arrived_at as arrived_at, ended_at,
    deployment_id, model, tenant, served_by, status, finish_reason, attempts_requests,
    any_prompt_tokens as prompt_tokens, cached_prompt_tokens, output_tokens, reasoning_tokens, requested_output_tokens,
    queue_s,
    ttft_s + epoch(arrived_at - first_arrived_at) as ttft_s,
    e2e_s + epoch(arrived_at - first_arrived_at) as e2e_s,
    (e2e_s - ttft_s) / nullif(greatest(output_tokens / coalesce(choices, 1) - 1, 0), 0) as tpot_s,
    tool_calls, tool_results, logged_tool_wait_s,
    status not in ('ok', 'length') as is_failed,
    has_backend as is_backend,
    attempts_requests > 1 as has_retry
from placed
