-- One row per week, grouping (model or tenant), member of it and counting window: how its requests arrive.
-- grain: week, grouping_name, member, window_s
-- incremental: week
with seconds as (
    select
        week, date_trunc('second', arrived_at) as second_at,
        coalesce(model, '(none)') as model, coalesce(tenant, '(none)') as tenant,
        count(*) as requests
    from fct_requests
    where served_by <> 'gateway_cache'
    group by all
),

members as (
    select week, 'model' as grouping_name, model as member, second_at, sum(requests) as requests
    from seconds
    group by all
    union all
    select week, 'tenant' as grouping_name, tenant as member, second_at, sum(requests) as requests
    from seconds
    group by all
),

sizes as (
    select unnest([1, 10, 60, 300, 3600]) as window_s
),

windows as (
    select
        members.week, members.grouping_name, members.member, sizes.window_s,
        time_bucket(to_seconds(sizes.window_s), members.second_at) as started_at,
        sum(members.requests) as arrivals
    from members
    cross join sizes
    group by all
),

-- windows of the covered time, quiet ones included
covered as (
    select sizes.window_s, coverage.week, greatest(coverage.covered_s / sizes.window_s, 1) as windows
    from dist_coverage as coverage
    cross join sizes
)

select
    windows.week, windows.grouping_name, windows.member, windows.window_s,
    cast(sum(windows.arrivals) as bigint) as requests,
    sum(windows.arrivals) / any_value(covered.windows) as arrivals_mean_requests,
    cast(max(windows.arrivals) as bigint) as arrivals_peak_requests,
    max(windows.arrivals) / (sum(windows.arrivals) / any_value(covered.windows)) as peak_to_mean_factor,
    cast(sum(windows.arrivals * windows.arrivals) as double) / sum(windows.arrivals)
    - sum(windows.arrivals) / any_value(covered.windows) as dispersion_factor
from windows
inner join covered on windows.week = covered.week and windows.window_s = covered.window_s
group by windows.week, windows.grouping_name, windows.member, windows.window_s
order by windows.week, windows.grouping_name, windows.member, windows.window_s
