-- One row per week with chat requests: which part of it the log covers, and the week it is compared with.
-- grain: week
select
    week,
    lag(week) over (order by week) as previous_week,
    covered_from_at, covered_to_at, covered_s, covered_ratio,
    requests, attempts_requests, rejected_rows, files,
    case
        when covered_s < 7200 then format('{:.0f} minutes', floor(covered_s / 60))
        when covered_s < 172800 then format('{:.0f} hours', floor(covered_s / 3600))
        when covered_s < 601200 then format('{:.1f} days', covered_s / 86400)
        else 'the whole'
    end || ' of a week'
    || case when covered_s < 601200 then ' are covered' else ' is covered' end as coverage_text
from dist_coverage
order by week
