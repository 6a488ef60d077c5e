-- One row per move of the P95 time to first token whose causes are not those there are, each told once: none may exist.
-- grain: week, deployment_id, scenario_id, kind
select
    week, deployment_id, scenario_id, kind,
    list(cause order by cause) as causes,
    min(previous_ttft_p95_s) as previous_ttft_p95_s,
    max(ttft_p95_s) as ttft_p95_s
from plan_ttft_causes
group by week, deployment_id, scenario_id, kind
having
    causes <> case kind
        when 'split' then ['prefill', 'queue']
        when 'cause' then ['arrivals', 'cache_hits', 'kv_pressure', 'lengths', 'preemption']
        else []
    end
    -- what the pool adds has one name
    or count(*) filter (where cause in ('kv_pressure', 'preemption') and part_s <> 0) > 1
    or min(ttft_p95_s) <> max(ttft_p95_s) or min(previous_ttft_p95_s) <> max(previous_ttft_p95_s)
    or abs(max(ttft_p95_s) / min(previous_ttft_p95_s) - 1) <= 0.2
    or max(previous_week) >= week
