-- One row per week, deployment and counting window: how requests arrive, beside the previous week.
-- grain: week, deployment_id, window_s
select
    this.week, this.deployment_id, this.window_s, this.requests,
    this.arrivals_mean_requests, this.arrivals_peak_requests,
    this.arrivals_mean_requests / this.window_s as arrivals_mean_requests_per_s,
    this.arrivals_peak_requests / this.window_s as arrivals_peak_requests_per_s,
    this.peak_at, this.peak_to_mean_factor, this.dispersion_factor, this.gap_cv_factor, this.arrival_step_s,
    coalesce(this.window_s > this.arrival_step_s, true) as is_trusted,
    earlier.arrivals_peak_requests as previous_arrivals_peak_requests,
    this.arrivals_peak_requests / nullif(earlier.arrivals_peak_requests, 0) - 1 as peak_change_factor
from dist_arrivals as this
inner join mart_coverage on this.week = mart_coverage.week
left join dist_arrivals as earlier
    on
        mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
        and this.window_s = earlier.window_s
order by this.week, this.deployment_id, this.window_s
