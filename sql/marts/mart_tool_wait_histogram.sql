-- One row per week, deployment, kind of gap and log2 bin in seconds.
-- grain: week, deployment_id, kind, bin_low_s
select
    week, deployment_id, kind, bin_low_s, bin_high_s, waits_requests,
    waits_requests / sum(waits_requests) over (partition by week, deployment_id, kind) as share_ratio
from dist_tool_wait_histogram
order by week, deployment_id, kind, bin_low_s
