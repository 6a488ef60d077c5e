-- One row per week and thing that the reader must know: about the data, then about the plan.
-- grain: week, deployment_id, code
-- A warning may change what is decided. A note says how the figures came about and changes nothing on the first screen.
with every_row as (
    select week, deployment_id, code, text, null as affected_ratio from mart_data_warnings
    union all
    select week, deployment_id, code, text, null as affected_ratio from mart_plan_warnings
    union all
    select week, deployment_id, code, text, affected_ratio from mart_plan_notes
)

select
    week, deployment_id, code,
    case
        when
            code in (
                'few_rejected_rows', 'some_times_modelled', 'memory_assumed_not_binding', 'engine_assumed',
                'tool_waits_unknown', 'few_requests', 'batch_below_pool', 'latency_replayed', 'not_replayed',
                'outputs_drawn', 'batch_above_recommended'
            )
            then 'note'
        when code in ('unknown_attempts', 'failed_outputs_unknown') and affected_ratio < 0.05 then 'note'
        else 'warning'
    end as severity,
    text
from every_row
order by week, deployment_id, code
