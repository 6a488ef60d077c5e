-- One row per attempt that reached a backend and held KV there: what residency and KV·time are made of.
-- grain: source, request_id, attempt
-- incremental: session
with attempts as not materialized (
    select * from stg_requests where is_backend
),

unplaced as (
    select count(*) > 0 as has_any from stg_requests where session_id is not null and turn is null
),

requests as (
    select fct_requests.source, fct_requests.request_id, fct_requests.turn, fct_requests.prompt_tokens
    from fct_requests
    cross join unplaced
    where fct_requests.has_retry or (unplaced.has_any and fct_requests.session_id is not null)
)

select
    attempts.request_id, attempts.attempt, attempts.source, attempts.session_id, attempts.agent_id,
    coalesce(attempts.turn, requests.turn) as turn,
    attempts.week, attempts.arrival_date, attempts.arrived_at, attempts.ended_at,
    attempts.deployment_id, attempts.model, attempts.tenant, attempts.replica_id,
    attempts.status, attempts.finish_reason,
    coalesce(attempts.prompt_tokens, requests.prompt_tokens) as prompt_tokens, attempts.cached_prompt_tokens,
    attempts.output_tokens, attempts.reasoning_tokens, attempts.requested_output_tokens, attempts.choices,
    attempts.queue_s, attempts.ttft_s, attempts.e2e_s,
    (attempts.e2e_s - attempts.ttft_s)
    / nullif(greatest(attempts.output_tokens / coalesce(attempts.choices, 1) - 1, 0), 0) as tpot_s,
    attempts.status not in ('ok', 'length') as is_failed,
    attempts.prefix_block_tokens, attempts.prefix_block_ids, attempts.flags
from attempts
left join requests on attempts.source = requests.source and attempts.request_id = requests.request_id
