-- One row per week, deployment and reason: outputs that a limit, a failure or nothing cut.
-- grain: week, deployment_id, reason
-- incremental: week
with sums as (
    select
        week,
        coalesce(deployment_id, '(all)') as deployment_id,
        reason,
        sum(requests) as requests,
        sum(requests * output_tokens) as output_tokens,
        max(output_tokens) as output_max_tokens
    from fct_output_ends
    group by grouping sets ((week, deployment_id, reason), (week, reason))
)

select
    week, deployment_id, reason,
    cast(requests as bigint) as requests,
    requests / sum(requests) over (partition by week, deployment_id) as share_ratio,
    cast(output_tokens as bigint) as output_total_tokens,
    output_max_tokens
from sums
order by week, deployment_id, reason
