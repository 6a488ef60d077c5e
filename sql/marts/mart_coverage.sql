-- One row per week with chat requests: which part of it the log covers, and the week it is compared with.
-- grain: week
with served as (
    select
        week,
        cast(coalesce(sum(requests) filter (where deployment_id = '(none)'), 0) as bigint) as unserved_requests,
        coalesce(sum(requests) filter (where deployment_id = '(none)'), 0) / sum(requests) as unserved_ratio
    from dist_served_models
    group by week
)

select
    this.week,
    lag(this.week) over (order by this.week) as previous_week,
    this.covered_from_at, this.covered_to_at, this.covered_s, this.covered_ratio,
    this.requests, this.attempts_requests, this.rejected_rows, this.files,
    coalesce(served.unserved_requests, 0) as unserved_requests,
    coalesce(served.unserved_ratio, 0) as unserved_ratio,
    case
        when this.covered_s < 7200 then format('{:.0f} minutes', floor(this.covered_s / 60))
        when this.covered_s < 172800 then format('{:.0f} hours', floor(this.covered_s / 3600))
        when this.covered_s < 601200 then format('{:.1f} days', this.covered_s / 86400)
        else 'the whole'
    end || ' of a week'
    || case when this.covered_s < 601200 then ' are covered' else ' is covered' end as coverage_text
from dist_coverage as this
left join served on this.week = served.week
order by this.week
