-- One row per arrival figure that cannot be: none may exist.
-- grain: week, deployment_id, window_s
select week, deployment_id, window_s, requests, arrivals_mean_requests, arrivals_peak_requests, peak_to_mean_factor
from dist_arrivals
where
    arrivals_peak_requests > requests or arrivals_mean_requests > arrivals_peak_requests + 1e-9
    or dispersion_factor < -1e-9 * arrivals_peak_requests or gap_cv_factor < 0 or arrival_step_s = 0
union all
select week, member as deployment_id, 0 as window_s, null as requests, gap_mean_s, 0 as peak, gap_cv_factor
from dist_group_gaps
where gap_cv_factor < 0
