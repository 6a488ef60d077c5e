-- One row per week, deployment and five minutes of the week's span, quiet ones included.
-- grain: week, deployment_id, window_started_at
with arrivals as (
    select
        week,
        coalesce(deployment_id, '(none)') as deployment_id,
        time_bucket(interval '5 minutes', arrived_at) as window_started_at,
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(output_tokens) as output_tokens
    from fct_requests
    where served_by <> 'gateway_cache'
    group by all
),

counts as (
    select
        week, window_started_at,
        coalesce(deployment_id, '(all)') as deployment_id,
        sum(requests) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(output_tokens) as output_tokens
    from arrivals
    group by grouping sets ((week, deployment_id, window_started_at), (week, window_started_at))
),

deployments as (select distinct week, deployment_id from counts),

grid as (
    select
        dist_coverage.week, deployments.deployment_id,
        unnest(generate_series(
            time_bucket(interval '5 minutes', dist_coverage.covered_from_at), dist_coverage.covered_to_at,
            interval '5 minutes'
        )) as window_started_at
    from dist_coverage
    inner join deployments
        on dist_coverage.week = deployments.week
)

select
    grid.week, grid.deployment_id, grid.window_started_at,
    cast(coalesce(counts.requests, 0) as bigint) as requests,
    cast(coalesce(counts.prompt_tokens, 0) as bigint) as prompt_tokens,
    cast(coalesce(counts.output_tokens, 0) as bigint) as output_tokens,
    case
        when flights.window_started_at = grid.window_started_at then flights.concurrency_mean_requests
        else flights.left_requests
    end as concurrency_mean_requests
from grid
left join counts
    on
        grid.week = counts.week and grid.deployment_id = counts.deployment_id
        and grid.window_started_at = counts.window_started_at
asof left join dist_concurrency as flights
    on grid.deployment_id = flights.deployment_id and grid.window_started_at >= flights.window_started_at
order by grid.week, grid.deployment_id, grid.window_started_at
