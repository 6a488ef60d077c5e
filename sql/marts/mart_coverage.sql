-- One row per week with chat requests: which part of it the log covers, and the week it is compared with.
-- grain: week
-- Compared is only the week right before, where it covers at least half as much and this one is not thin beside it.
with served as (
    select
        week,
        cast(coalesce(sum(requests) filter (where deployment_id = '(none)'), 0) as bigint) as unserved_requests,
        coalesce(sum(requests) filter (where deployment_id = '(none)'), 0) / sum(requests) as unserved_ratio
    from dist_served_models
    group by week
),

worded as (
    select
        *,
        case
            when covered_s < 60 then 'less than a minute'
            when covered_s < 120 then '1 minute'
            when covered_s < 7200 then format('{:.0f} minutes', floor(covered_s / 60))
            when covered_s < 172800 then format('{:.0f} hours', floor(covered_s / 3600))
            when covered_s < 601200 then format('{:.1f} days', covered_s / 86400)
            else 'the whole'
        end as span_text,
        if(ends_with(span_text, 's'), ' are', ' is') as verb,
        lag(week) over before as earlier_week,
        lag(covered_s) over before as earlier_covered_s,
        lag(span_text || verb) over before as earlier_span_text,
        date_trunc('week', lag(covered_from_at) over before) + interval 7 day = date_trunc('week', covered_from_at)
            as is_adjacent,
        requests < 0.1 * lag(requests) over before
        or (covered_s < 86400 and covered_s < 0.5 * lag(covered_s) over before) as is_thin
    from dist_coverage
    window before as (order by week)
),

compared as (
    select
        *,
        case
            when earlier_week is null then 'no earlier week to compare with'
            when not is_adjacent then 'not compared: ' || earlier_week || ' is not the week before'
            when is_thin then 'not compared: this week is thin beside ' || earlier_week
            when earlier_covered_s < 0.5 * covered_s
                then format('not compared: of {} only {} covered', earlier_week, earlier_span_text)
        end as comparison_text
    from worded
)

select
    this.week,
    if(this.comparison_text is null, this.earlier_week, null) as previous_week,
    this.covered_from_at, this.covered_to_at, this.covered_s, this.covered_ratio,
    this.requests, this.attempts_requests, this.rejected_rows, this.files,
    coalesce(served.unserved_requests, 0) as unserved_requests, coalesce(served.unserved_ratio, 0) as unserved_ratio,
    if(this.is_thin, this.earlier_week, null) as fuller_week,
    this.span_text || ' of a week' || this.verb || ' covered' as coverage_text,
    this.comparison_text
from compared as this
left join served on this.week = served.week
order by this.week
