-- One row per week, deployment and measure: the tail beyond the p95 as Hill's index and as a generalised Pareto (GPD).
-- grain: week, deployment_id, measure
-- incremental: week
select
    week, member as deployment_id, measure, requests, tail_requests, threshold_tokens, hill_factor, gpd_shape_factor,
    gpd_scale_tokens, log_mean_factor, log_sd_factor
from dist_group_length_tails
where grouping_name = 'deployment'
order by week, deployment_id, measure
