-- One row per week and thing about its data that the reader must know.
-- grain: week, deployment_id, code
with unserved as (
    select
        week,
        sum(requests) as requests,
        count(*) as models,
        array_to_string(list(model order by requests desc, model)[:3], ', ') as named
    from dist_served_models
    where deployment_id = '(none)'
    group by week
),

origins as (
    select week, sum(chat_rows) as chat_rows, sum(chat_rows * assumed_origin_ratio) as assumed_rows
    from dist_data_quality
    group by week
),

lengths as (
    select
        prompts.week, prompts.deployment_id,
        prompts.requests + prompts.unknown_requests as requests,
        prompts.unknown_requests as prompt_requests, outputs.unknown_requests as output_requests
    from dist_prompt_tokens as prompts
    inner join dist_output_tokens as outputs
        on prompts.week = outputs.week and prompts.deployment_id = outputs.deployment_id and outputs.model = '(all)'
    where prompts.model = '(all)' and prompts.unknown_requests + outputs.unknown_requests > 0
)

select week, '(all)' as deployment_id, 'coverage_low' as code, coverage_text as text
from mart_coverage
where covered_ratio < 0.9
union all
select
    week, deployment_id, 'arrival_steps' as code,
    format('arrival stamps are in {:g} s steps: burstiness below that is not to be trusted', arrival_step_s) as text
from dist_arrivals
where window_s = 1 and arrival_step_s is not null and deployment_id <> '(all)'
union all
select
    week, '(all)', 'assumed_origin',
    format('the day of {:.0f} % of the rows is assumed: the hour of the week says nothing', 100 * assumed_rows / chat_rows)
from origins
where assumed_rows > 0
union all
select
    week, '(all)', 'unserved_models', format('{:,} requests of {:,} models that no deployment serves: {}', requests, models, named)
from unserved
union all
select
    week, deployment_id, 'unknown_lengths',
    format('of {:,} requests {:,} have no prompt length and {:,} no output length', requests, prompt_requests, output_requests)
from lengths
union all
select
    week, '(all)', 'rejected_rows', format('{:,} records were rejected, {:,} requests were loaded', rejected_rows, requests)
from dist_coverage
where rejected_rows > 0
order by 1, 2, 3
