-- One row per week that a table names and no request arrived in: none may exist.
-- grain: relation, week
-- Rows of the log are left out: a week may hold nothing but later attempts of requests of the week before.
with named as (
    select distinct 'dist_length_histogram' as relation, week from dist_length_histogram
    union all
    select distinct 'dist_latency_quantiles' as relation, week from dist_latency_quantiles
    union all
    select distinct 'dist_sessions' as relation, week from dist_sessions
    union all
    select distinct 'dist_covered_spans' as relation, week from dist_covered_spans
    union all
    select distinct 'dist_output_survival' as relation, week from dist_output_survival
    union all
    select distinct 'mart_lengths' as relation, week from mart_lengths
    union all
    select distinct 'mart_latency' as relation, week from mart_latency where source = 'logged'
    union all
    select distinct 'mart_coverage' as relation, week from mart_coverage
)

select named.relation, named.week
from named
left join dist_coverage on named.week = dist_coverage.week
where dist_coverage.week is null
