-- One row per week and thing about its data that the reader must know.
-- grain: week, deployment_id, code
with unserved as (
    select
        week, sum(requests) as requests, count(*) as models,
        array_to_string(list(model order by requests desc, model asc)[:3], ', ') as named
    from dist_served_models
    where deployment_id = '(none)'
    group by week
),

origins as (
    select week, sum(chat_rows) as chat_rows, sum(chat_rows * assumed_origin_ratio) as assumed_rows
    from dist_data_quality
    group by week
)

select week, '(all)' as deployment_id, 'coverage_low' as code, coverage_text as text
from mart_coverage
where covered_ratio < 0.9
union all
select
    thin.week, '(all)' as deployment_id, 'thin_week' as code,
    format(
        'this week is thin: {:,} requests, {}; {} has {:,}: choose it with --week {}',
        thin.requests, thin.coverage_text, thin.fuller_week, fuller.requests, thin.fuller_week
    ) as text
from mart_coverage as thin
inner join mart_coverage as fuller on thin.fuller_week = fuller.week
union all
select
    week, deployment_id, 'arrival_steps' as code,
    format('arrival stamps are in {:g} s steps: burstiness below that is not to be trusted', arrival_step_s) as text
from dist_arrivals
where window_s = 1 and arrival_step_s is not null and deployment_id <> '(all)'
union all
select
    week, '(all)' as deployment_id, 'assumed_origin' as code,
    format(
        'the day of {:.0f} % of the rows is assumed: the hour of the week says nothing', 100 * assumed_rows / chat_rows
    ) as text
from origins
where assumed_rows > 0
union all
select
    unserved.week, '(all)' as deployment_id, 'unserved_models' as code,
    format(
        '{:,} of {:,} requests ask for {:,} model{} that no deployment serves: {}',
        unserved.requests, coverage.requests, unserved.models, if(unserved.models = 1, '', 's'), unserved.named
    ) as text
from unserved inner join mart_coverage as coverage on unserved.week = coverage.week
union all
select
    week, '(all)' as deployment_id, if(rejected_rows < 0.01 * requests, 'few_rejected_rows', 'rejected_rows') as code,
    format(
        '{:,} {} rejected, {:,} {} loaded', rejected_rows, if(rejected_rows = 1, 'record was', 'records were'),
        requests, if(requests = 1, 'request was', 'requests were')
    ) as text
from dist_coverage where rejected_rows > 0
order by week, deployment_id, code
