-- One row per week and deployment whose lengths of one measure get lost between two tables: none may exist.
-- grain: relation, week, deployment_id, measure
with wanted as (
    select week, deployment_id, 'prompt' as measure, requests from dist_prompt_tokens where model = '(all)'
    union all
    select week, deployment_id, 'output' as measure, requests from dist_output_tokens where model = '(all)'
    union all
    select week, deployment_id, 'both' as measure, sum(requests) as requests from fct_output_ends group by all
),

found as (
    select 'dist_length_counts' as relation, week, deployment_id, measure, sum(requests) as requests
    from dist_length_counts group by all
    union all
    select 'dist_length_tails' as relation, week, deployment_id, measure, requests from dist_length_tails
    union all
    select 'dist_tenant_lengths' as relation, week, deployment_id, measure, sum(requests) as requests
    from dist_tenant_lengths group by all
    union all
    select 'dist_joint_lengths' as relation, week, deployment_id, 'both' as measure, sum(requests) as requests
    from dist_joint_lengths group by all
    union all
    select 'dist_length_correlation' as relation, week, deployment_id, 'both' as measure, requests
    from dist_length_correlation
    union all
    select 'dist_output_limits' as relation, week, deployment_id, 'both' as measure, sum(requests) as requests
    from dist_output_limits group by all
    union all
    select 'dist_prompt_strata' as relation, week, deployment_id, 'both' as measure, sum(requests) as requests
    from dist_prompt_strata group by all
    union all
    select 'dist_output_survival' as relation, week, deployment_id, 'both' as measure, sum(requests) as requests
    from dist_output_survival group by all
)

select found.relation, found.week, found.deployment_id, found.measure, found.requests, wanted.requests as expected
from found
inner join wanted
    on found.week = wanted.week and found.deployment_id = wanted.deployment_id and found.measure = wanted.measure
where found.requests <> wanted.requests
