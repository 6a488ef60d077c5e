-- One row where sessions, their turns and the gaps between them do not add up: none may exist.
-- grain: what
with counts as (
    select
        (select count(*) from fct_requests where session_id is not null) as requests,
        (select coalesce(sum(turns_requests), 0) from fct_sessions) as turns,
        (select coalesce(sum(agents), 0) from fct_sessions) as agents,
        (select count(*) from fct_tool_waits) as gaps,
        (select count(*) from fct_sessions) as sessions,
        (select coalesce(sum(sessions), 0) from dist_sessions where deployment_id = '(all)') as counted_sessions,
        (select coalesce(sum(waits_requests), 0) from dist_tool_waits where deployment_id = '(all)') as counted_gaps
)

select 'turns of fct_sessions' as what, turns as found, requests as expected from counts where turns <> requests
union all
select 'gaps of fct_tool_waits' as what, gaps as found, requests - agents as expected from counts
where gaps <> requests - agents
union all
select 'sessions of dist_sessions' as what, counted_sessions as found, sessions as expected from counts
where counted_sessions <> sessions
union all
select 'gaps of dist_tool_waits' as what, counted_gaps as found, gaps as expected from counts where counted_gaps <> gaps
