-- One row per week with chat requests: which part of the week the log covers.
-- grain: week
-- incremental: week
with spans as (
    select
        week,
        min(covered_from_at) as covered_from_at,
        max(covered_to_at) as covered_to_at,
        cast(sum(cast(covered_s as decimal(18, 6))) as double) as covered_s
    from dist_covered_spans
    group by week
),

requests as (
    select week, cast(sum(requests) as bigint) as requests from fct_arrival_seconds group by week
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
    requests.requests,
    coalesce(attempts.attempts_requests, 0) as attempts_requests,
    coalesce(rejects.rejected_rows, 0) as rejected_rows,
    coalesce(files.files, 0) as files
from spans
inner join requests on spans.week = requests.week
left join attempts on spans.week = attempts.week
left join files on spans.week = files.week
left join rejects on spans.week = rejects.week
order by spans.week
