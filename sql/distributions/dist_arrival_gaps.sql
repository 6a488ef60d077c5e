-- One row per week and deployment: the gaps between arrivals, those of over an hour (outages of the log) left out.
-- grain: week, deployment_id
-- incremental: week
with arrivals as not materialized (
    select week, coalesce(deployment_id, '(none)') as deployment_id, epoch_us(arrived_at) as arrived_us
    from fct_requests
    where served_by <> 'gateway_cache'
),

gaps as (
    select
        week, deployment_id,
        arrived_us - lag(arrived_us) over (partition by week, deployment_id order by arrived_us) as gap_us
    from arrivals
    union all
    select
        week, '(all)' as deployment_id,
        arrived_us - lag(arrived_us) over (partition by week order by arrived_us) as gap_us
    from arrivals
),

sums as (
    select
        week, deployment_id,
        count(*) as gaps,
        cast(sum(gap_us) as double) as sum_us,
        cast(sum(cast(gap_us as hugeint) * gap_us) as double) as sum_squares,
        count(*) filter (where gap_us = 0) as zero_gaps,
        median(cast(gap_us as uinteger)) filter (where gap_us > 0) as step_us
    from gaps
    where gap_us <= 3600000000
    group by week, deployment_id
)

select
    week, deployment_id,
    sum_us / gaps / 1e6 as gap_mean_s,
    sqrt(greatest(gaps * sum_squares - sum_us * sum_us, 0)) / nullif(sum_us, 0) as gap_cv_factor,
    case when 2 * zero_gaps > gaps then step_us / 1e6 end as arrival_step_s
from sums
order by week, deployment_id
