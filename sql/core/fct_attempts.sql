-- One row per attempt that reached a backend and held KV there: what residency and KV·time are made of.
-- grain: source, request_id, attempt
with attempts as not materialized (
    select * from stg_requests where is_backend
),

turns as (
    select source, request_id, turn
    from fct_requests
    where
        session_id is not null
        and exists (
            select 1 from stg_requests where stg_requests.session_id is not null and stg_requests.turn is null
        )
)

select
    attempts.request_id, attempts.attempt, attempts.source, attempts.session_id, attempts.agent_id,
    coalesce(attempts.turn, turns.turn) as turn,
    attempts.week, attempts.arrival_date, attempts.arrived_at, attempts.ended_at,
    attempts.deployment_id, attempts.model, attempts.tenant, attempts.replica_id,
    attempts.status, attempts.finish_reason,
    attempts.prompt_tokens, attempts.cached_prompt_tokens, attempts.output_tokens, attempts.reasoning_tokens,
    attempts.requested_output_tokens, attempts.choices,
    attempts.queue_s, attempts.ttft_s, attempts.e2e_s,
    (attempts.e2e_s - attempts.ttft_s)
    / nullif(greatest(attempts.output_tokens / coalesce(attempts.choices, 1) - 1, 0), 0) as tpot_s,
    attempts.status not in ('ok', 'length') as is_failed,
    attempts.prefix_block_tokens, attempts.prefix_block_ids, attempts.flags
from attempts
left join turns
    on attempts.source = turns.source and attempts.request_id = turns.request_id and attempts.turn is null
