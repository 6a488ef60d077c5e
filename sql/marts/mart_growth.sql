-- One row per week and deployment with a plan: growth and when today's GPUs run out, and how past forecasts fared.
-- grain: week, deployment_id
with planned as (
    select week, deployment_id, demand from plan_replicas where scenario_id = 'today' and is_binding
),

outlooks as (
    select
        week, deployment_id,
        arg_max(horizon_week, horizon_week) as horizon_week,
        arg_max(value_gpus, horizon_week) as value_gpus,
        arg_max(low_gpus, horizon_week) as low_gpus,
        arg_max(high_gpus, horizon_week) as high_gpus,
        max(run_out_date) as run_out_date,
        max(order_by_date) as order_by_date
    from mart_forecasts
    group by week, deployment_id
),

-- forecasts of the weeks before, for weeks up to this one
past as (
    select
        planned.week, planned.deployment_id,
        count(forecasts.is_held) as judged_forecasts,
        count(*) filter (where forecasts.is_held) as held_forecasts
    from planned
    inner join mart_forecasts as forecasts
        on
            planned.deployment_id = forecasts.deployment_id and planned.week >= forecasts.horizon_week
            and planned.week > forecasts.week
    group by planned.week, planned.deployment_id
)

select
    planned.week, planned.deployment_id,
    outlooks.horizon_week, outlooks.value_gpus, outlooks.low_gpus, outlooks.high_gpus,
    outlooks.run_out_date, outlooks.order_by_date,
    coalesce(past.judged_forecasts, 0) as judged_forecasts, coalesce(past.held_forecasts, 0) as held_forecasts,
    case
        when planned.demand = 'none' then 'no forecast: no usable traffic'
        when outlooks.week is null then 'no forecast: it takes 4 weeks, half of each covered'
        when outlooks.run_out_date is null then 'today''s GPUs last to ' || outlooks.horizon_week
        else format(
            'today''s GPUs run out on {}; order by {}',
            strftime(outlooks.run_out_date, '%Y-%m-%d'), strftime(outlooks.order_by_date, '%Y-%m-%d')
        )
    end
    || if(past.judged_forecasts > 0, format(
        '; {} of {} past forecasts held the fact in their 90 % interval', past.held_forecasts, past.judged_forecasts
    ), '') as growth_text
from planned
left join outlooks on planned.week = outlooks.week and planned.deployment_id = outlooks.deployment_id
left join past on planned.week = past.week and planned.deployment_id = past.deployment_id
order by planned.week, planned.deployment_id
