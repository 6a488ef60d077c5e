-- One row per week, grouping, member, measure and quantile: its place in order, failures last or left out.
-- grain: week, grouping_name, member, measure, quantile_ratio, has_failures
-- incremental: week
select
    bins.week, bins.grouping_name, bins.member, bins.measure, quantiles.quantile_ratio, kinds.has_failures,
    quantiles.quantile_ratio
    * (sum(bins.requests) filter (where kinds.has_failures or bins.latency_bin < 1000000) - 1) as latency_place
from dist_latency_bins as bins
cross join (values (0.5), (0.9), (0.95), (0.99)) as quantiles (quantile_ratio)
cross join (values (false), (true)) as kinds (has_failures)
group by bins.week, bins.grouping_name, bins.member, bins.measure, quantiles.quantile_ratio, kinds.has_failures
