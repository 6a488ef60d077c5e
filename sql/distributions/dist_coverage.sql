-- One row per week with chat requests: which part of the week the log covers.
-- grain: week
with seconds as (
    select week, second_at, sum(requests) as requests, min(first_arrived_at) as from_at, max(last_arrived_at) as to_at
    from fct_arrival_seconds
    group by week, second_at
),

gaps as (
    select *, epoch(from_at - lag(to_at) over (partition by week order by second_at)) as gap_s
    from seconds
),

spans as (
    select
        week,
        min(from_at) as covered_from_at,
        max(to_at) as covered_to_at,
        epoch(max(to_at) - min(from_at))
        - cast(coalesce(sum(cast(gap_s as decimal(18, 6))) filter (where gap_s > 3600), 0) as double) as covered_s,
        cast(sum(requests) as bigint) as requests
    from gaps
    group by week
),

attempts as (
    select week, count(*) as attempts_requests from fct_attempts group by week
),

files as (
    select week, count(distinct source_file) as files from stg_requests where is_chat group by week
),

rejects as (
    select week, cast(sum(rejected_rows) as bigint) as rejected_rows from dist_rejects group by week
)

select
    spans.week, spans.covered_from_at, spans.covered_to_at, spans.covered_s,
    spans.covered_s / 604800 as covered_ratio,
    spans.requests,
    coalesce(attempts.attempts_requests, 0) as attempts_requests,
    coalesce(rejects.rejected_rows, 0) as rejected_rows,
    coalesce(files.files, 0) as files
from spans
left join attempts on spans.week = attempts.week
left join files on spans.week = files.week
left join rejects on spans.week = rejects.week
order by spans.week
