-- One row per whole that its parts do not make up, or figure that is larger than what it is of: none may exist.
-- grain: relation, week, deployment_id, what
select
    'dist_output_survival' as relation, week, deployment_id, 'survival_mean_tokens' as what,
    survival_mean_tokens as found
from dist_output_survival
where survival_mean_tokens > support_tokens * (1 + 1e-9) or censored_requests > requests
union all
select 'dist_output_limits' as relation, week, deployment_id, 'share_ratio' as what, sum(share_ratio) as found
from dist_output_limits
group by week, deployment_id
having abs(found - 1) > 1e-9
union all
select 'mart_length_histogram' as relation, week, deployment_id, measure as what, sum(share_ratio) as found
from mart_length_histogram
group by week, deployment_id, measure
having abs(found - 1) > 1e-9
union all
select 'mart_tool_wait_histogram' as relation, week, deployment_id, kind as what, sum(share_ratio) as found
from mart_tool_wait_histogram
group by week, deployment_id, kind
having abs(found - 1) > 1e-9
union all
select 'dist_length_correlation' as relation, week, deployment_id, 'correlation_factor' as what, correlation_factor
from dist_length_correlation
where abs(correlation_factor) > 1 or abs(log_correlation_factor) > 1
union all
select
    'dist_tool_wait_histogram' as relation, bins.week, bins.deployment_id, bins.kind as what,
    sum(bins.waits_requests) as found
from dist_tool_wait_histogram as bins
inner join dist_tool_waits as waits
    on bins.week = waits.week and bins.deployment_id = waits.deployment_id and bins.kind = waits.kind
group by bins.week, bins.deployment_id, bins.kind
having found <> max(waits.waits_requests - waits.unknown_requests)
