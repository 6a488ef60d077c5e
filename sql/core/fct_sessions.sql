-- One row per session: its turns, agents, span, largest prompt and waits.
-- grain: source, session_id
-- incremental: session
with parts as (
    select
        source, session_id, deployment_id, tenant,
        count(*) as turns_requests
    from fct_requests
    where session_id is not null
    group by source, session_id, deployment_id, tenant
),

homes as (
    select
        source, session_id,
        max((turns_requests, coalesce(deployment_id, ''), coalesce(tenant, ''))) as most
    from parts
    group by source, session_id
),

sessions as (
    select
        source, session_id,
        count(*) as turns_requests,
        count(distinct coalesce(agent_id, '')) as agents,
        min(arrived_at) as started_at,
        max(ended_at) as ended_at,
        max(prompt_tokens) as prompt_max_tokens,
        cast(sum(output_tokens) as bigint) as output_tokens
    from fct_requests
    where session_id is not null
    group by source, session_id
),

waits as (
    select
        source, session_id,
        sum(cast(wait_s as decimal(18, 6))) filter (where kind = 'tool') as tool_wait_s,
        sum(cast(wait_s as decimal(18, 6))) filter (where kind = 'user') as user_wait_s,
        bool_or(is_overlap) as has_overlap
    from fct_tool_waits
    group by source, session_id
)

select
    sessions.session_id, sessions.source,
    strftime(sessions.started_at, '%G-W%V') as week,
    nullif(homes.most[2], '') as deployment_id,
    nullif(homes.most[3], '') as tenant,
    sessions.turns_requests, sessions.agents, sessions.started_at, sessions.ended_at,
    sessions.prompt_max_tokens, sessions.output_tokens,
    cast(coalesce(waits.tool_wait_s, 0) as double) as tool_wait_s,
    cast(coalesce(waits.user_wait_s, 0) as double) as user_wait_s,
    coalesce(waits.has_overlap, false) as has_overlap
from sessions
inner join homes on sessions.source = homes.source and sessions.session_id = homes.session_id
left join waits on sessions.source = waits.source and sessions.session_id = waits.session_id
