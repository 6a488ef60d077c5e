-- One row per week, grouping and measure whose requests by model or tenant are not those of the whole: none may exist.
-- grain: relation, week, grouping_name, measure
with wanted as (
    select week, measure, sum(requests) as requests
    from dist_length_counts where deployment_id = '(all)' group by all
    union all
    select week, 'both' as measure, sum(requests) as requests
    from dist_joint_lengths where deployment_id = '(all)' group by all
    union all
    select week, 'cut' as measure, sum(censored_requests) as requests
    from dist_length_histogram where deployment_id = '(all)' group by all
    union all
    select week, measure, sum(requests) as requests
    from dist_latency_bins where grouping_name = 'deployment' and member = '(all)' group by all
),

found as (
    select 'dist_group_length_counts' as relation, week, grouping_name, measure, sum(requests) as requests
    from dist_group_length_counts group by all
    union all
    select 'dist_group_length_histogram' as relation, week, grouping_name, measure, sum(requests) as requests
    from dist_group_length_histogram group by all
    union all
    select
        'dist_group_length_histogram' as relation, week, grouping_name, 'cut' as measure,
        sum(censored_requests) as requests
    from dist_group_length_histogram group by all
    union all
    select 'dist_group_length_tails' as relation, week, grouping_name, measure, sum(requests) as requests
    from dist_group_length_tails where grouping_name <> 'deployment' group by all
    union all
    select 'dist_group_joint_lengths' as relation, week, grouping_name, 'both' as measure, sum(requests) as requests
    from dist_group_joint_lengths group by all
    union all
    select 'dist_latency_bins' as relation, week, grouping_name, measure, sum(requests) as requests
    from dist_latency_bins where grouping_name <> 'deployment' group by all
)

select found.relation, found.week, found.grouping_name, found.measure, found.requests, wanted.requests as expected
from found
inner join wanted on found.week = wanted.week and found.measure = wanted.measure
where found.requests <> wanted.requests
