-- One row per week, deployment and five minutes of the week's span, quiet ones included.
-- grain: week, deployment_id, window_started_at
-- incremental: week
with arrivals as (
    select
        week, coalesce(deployment_id, '(none)') as deployment_id, prompt_tokens, output_tokens,
        time_bucket(interval '5 minutes', arrived_at) as window_started_at
    from fct_requests
    where served_by <> 'gateway_cache'
),

counts as (
    select
        coalesce(deployment_id, '(all)') as deployment_id, week, window_started_at, count(*) as requests,
        sum(prompt_tokens) as prompt_tokens, sum(output_tokens) as output_tokens
    from arrivals
    group by grouping sets ((week, deployment_id, window_started_at), (week, window_started_at))
),

deployments as (select distinct week, deployment_id from counts),

grid as (
    select
        dist_coverage.week, deployments.deployment_id,
        unnest(generate_series(
            time_bucket(interval '5 minutes', dist_coverage.covered_from_at),
            dist_coverage.covered_to_at, interval '5 minutes'
        )) as window_started_at
    from dist_coverage
    inner join deployments on dist_coverage.week = deployments.week
),

flights as (
    select
        grid.week,
        coalesce(grid.deployment_id, known.deployment_id) as deployment_id,
        coalesce(grid.window_started_at, known.window_started_at) as window_started_at,
        coalesce(
            known.concurrency_mean_requests, last_value(known.left_requests ignore nulls) over earlier
        ) as concurrency_mean_requests
    from grid
    full join dist_concurrency as known
        on grid.deployment_id = known.deployment_id and grid.window_started_at = known.window_started_at
    window earlier as (
        partition by coalesce(grid.deployment_id, known.deployment_id)
        order by coalesce(grid.window_started_at, known.window_started_at)
    )
)

select
    flights.week, flights.deployment_id, flights.window_started_at,
    coalesce(counts.requests, 0) as requests,
    coalesce(counts.prompt_tokens, 0) as prompt_tokens, coalesce(counts.output_tokens, 0) as output_tokens,
    flights.concurrency_mean_requests
from flights
left join counts
    on flights.deployment_id = counts.deployment_id and flights.window_started_at = counts.window_started_at
where flights.week is not null
order by flights.week, flights.deployment_id, flights.window_started_at
