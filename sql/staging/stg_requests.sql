-- One row per row of the lake: typed, with its week and the deployment that serves its model.
-- grain: source, request_id, attempt
-- incremental: session
with typed as not materialized (
    select
        * replace (
            -- a lake of before such times were refused: more than a week, and no stamp can hold it
            case when queue_s between 0 and 604800 then queue_s end as queue_s,
            case when ttft_s between 0 and 604800 then ttft_s end as ttft_s,
            case when e2e_s between 0 and 604800 then e2e_s end as e2e_s
        ),
        timezone('UTC', arrived_at) as arrived_utc_at,
        -- names in brackets stand for sums in all tables
        if(tenant in ('(all)', '(none)'), '\' || tenant, tenant) as shown_tenant,
        coalesce(operation, 'chat') as known_operation, coalesce(served_by, 'backend') as known_served_by,
        coalesce(status, 'ok') as known_status,
        coalesce(flags, [])
        || if(greatest(queue_s, ttft_s, e2e_s) > 604800, ['duration_implausible'], []) as known_flags
    from raw_requests
),

-- a session that only LiteLLM's fall-back id names is one from its second call on
unproven as (
    select source, session_id
    from typed
    where list_contains(known_flags, 'session_unproven')
    group by source, session_id
    having count(distinct request_id) = 1
),

told as not materialized (
    select
        *,
        known_operation = 'chat' and not list_has_any(known_flags, ['aggregate', 'synthetic']) as is_chat,
        known_served_by = 'gateway_cache' and starts_with(record_id, request_id) as is_repeat,
        arrived_utc_at + to_microseconds(cast(round(e2e_s * 1e6) as bigint)) as ended_utc_at
    from typed
)

select
    -- answers from the gateway's cache share the id of the answer they repeat, and are requests of their own
    case when told.is_repeat then told.record_id else told.request_id end as request_id,
    case when told.is_repeat then 1 else coalesce(told.attempt, 1) end as attempt,
    case when unproven.session_id is null then told.session_id end as session_id, told.agent_id, told.turn,
    strftime(told.arrived_utc_at, '%G-W%V') as week,
    cast(told.arrived_utc_at as date) as arrival_date,
    told.arrived_utc_at as arrived_at, told.ended_utc_at as ended_at,
    raw_serves.deployment_id,
    if(told.model in ('(all)', '(none)'), '\' || told.model, told.model) as model, told.shown_tenant as tenant,
    told.known_operation as operation, told.known_served_by as served_by, told.replica_id,
    told.known_status as status, told.finish_reason,
    told.prompt_tokens, told.cached_prompt_tokens, told.cache_write_tokens,
    told.output_tokens, told.reasoning_tokens, told.requested_output_tokens, told.choices,
    told.queue_s, told.ttft_s, told.e2e_s, told.tool_calls, told.tool_results, told.logged_tool_wait_s,
    told.prefix_block_tokens, told.prefix_block_ids, told.source, told.source_file, told.source_position,
    told.is_chat, told.is_chat and told.known_served_by = 'backend' and told.known_status <> 'rejected' as is_backend,
    told.known_flags as flags
from told
left join raw_serves on told.model is not distinct from raw_serves.model
left join unproven on told.source = unproven.source and told.session_id = unproven.session_id
