-- One row per week, grouping (model or tenant) and member: gaps between its arrivals, those of over an hour left out.
-- grain: week, grouping_name, member
-- incremental: week
with arrivals as not materialized (
    select week, model, tenant, epoch_us(arrived_at) as arrived_us
    from fct_requests
    where served_by <> 'gateway_cache'
),

gaps as (
    select
        week, 'model' as grouping_name, model as member,
        arrived_us - lag(arrived_us) over (partition by week, model order by arrived_us) as gap_us
    from arrivals
    union all
    select
        week, 'tenant' as grouping_name, tenant as member,
        arrived_us - lag(arrived_us) over (partition by week, tenant order by arrived_us) as gap_us
    from arrivals
),

sums as (
    select
        week, grouping_name, member, count(*) as gaps,
        cast(sum(gap_us) as double) as sum_us,
        cast(sum(cast(gap_us as hugeint) * gap_us) as double) as sum_squares
    from gaps
    where gap_us <= 3600000000
    group by week, grouping_name, member
)

select
    week, grouping_name, coalesce(member, '(none)') as member,
    sum_us / gaps / 1e6 as gap_mean_s,
    sqrt(greatest(gaps * sum_squares - sum_us * sum_us, 0)) / nullif(sum_us, 0) as gap_cv_factor
from sums
order by week, grouping_name, member
