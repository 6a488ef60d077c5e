-- One row per span of a week without a gap of over an hour between two arrivals: what the log covers.
-- grain: week, covered_from_at
-- incremental: week
with seconds as (
    select week, second_at, min(first_arrived_at) as from_at, max(last_arrived_at) as to_at
    from fct_arrival_seconds
    group by week, second_at
),

marked as (
    select
        *,
        coalesce(from_at - lag(to_at) over (partition by week order by second_at) > interval '1 hour', false) as is_new
    from seconds
),

numbered as (
    select
        *,
        sum(cast(is_new as integer)) over (partition by week order by second_at rows unbounded preceding) as span
    from marked
)

select
    week,
    min(from_at) as covered_from_at,
    max(to_at) as covered_to_at,
    epoch(max(to_at) - min(from_at)) as covered_s
from numbered
group by week, span
order by week, covered_from_at
