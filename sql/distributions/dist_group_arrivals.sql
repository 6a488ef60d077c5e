-- One row per week, grouping (model or tenant), member of it and counting window: how its requests arrive.
-- grain: week, grouping_name, member, window_s
-- incremental: week
-- Each window is counted from the next smaller one; a week holds whole ones of every size; quiet ones count.
with arrivals as (
    select 'model' as kind, model as member, arrived_at from fct_requests where served_by <> 'gateway_cache'
    union all
    select 'tenant' as kind, tenant as member, arrived_at from fct_requests where served_by <> 'gateway_cache'
),

seconds as (
    select kind, coalesce(member, '(none)') as member, date_trunc('second', arrived_at) as begun_at, count(*) as n
    from arrivals
    group by all
),

tens as (
    select kind, member, time_bucket(interval 10 second, begun_at) as begun_at, sum(n) as n from seconds group by all
),

minutes as (
    select kind, member, date_trunc('minute', begun_at) as begun_at, sum(n) as n from tens group by all
),

fives as (
    select kind, member, time_bucket(interval 5 minute, begun_at) as begun_at, sum(n) as n from minutes group by all
),

hours as (
    select kind, member, date_trunc('hour', begun_at) as begun_at, sum(n) as n from fives group by all
),

windows as (
    select 1 as window_s, * from seconds
    union all
    select 10 as window_s, * from tens
    union all
    select 60 as window_s, * from minutes
    union all
    select 300 as window_s, * from fives
    union all
    select 3600 as window_s, * from hours
),

sums as (
    select
        kind, member, window_s, date_trunc('week', begun_at) as week_at,
        cast(sum(n) as bigint) as requests, cast(max(n) as bigint) as peak, cast(sum(n * n) as double) as squares
    from windows
    group by all
)

select
    coverage.week, sums.kind as grouping_name, sums.member, sums.window_s, sums.requests,
    sums.requests / greatest(coverage.covered_s / sums.window_s, 1) as arrivals_mean_requests,
    sums.peak as arrivals_peak_requests,
    sums.peak / (sums.requests / greatest(coverage.covered_s / sums.window_s, 1)) as peak_to_mean_factor,
    sums.squares / sums.requests - sums.requests / greatest(coverage.covered_s / sums.window_s, 1) as dispersion_factor
from sums
inner join dist_coverage as coverage on strftime(sums.week_at, '%G-W%V') = coverage.week
