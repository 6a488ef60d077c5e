-- One row per week and deployment planned the week before too: GPUs needed then and now, and why they differ.
-- grain: week, deployment_id
with counts as (
    select
        week, deployment_id, demand, demand_replicas, needed_gpus, low_gpus, high_gpus,
        needed_replicas - replicas_replicas as spare_replicas,
        case demand when 'kv' then 'KV memory' else demand end as demand_text
    from plan_replicas
    where scenario_id = 'today' and is_binding
)

select
    now.week, now.deployment_id, mart_coverage.previous_week,
    earlier.needed_gpus as previous_needed_gpus, now.needed_gpus,
    now.needed_gpus - earlier.needed_gpus as gpus_change_gpus,
    now.demand as binding_demand, earlier.demand as previous_binding_demand,
    now.demand_replicas, earlier.demand_replicas as previous_demand_replicas,
    now.needed_gpus between earlier.low_gpus and earlier.high_gpus as is_in_interval,
    case
        when now.needed_gpus <> earlier.needed_gpus
            then concat_ws(
                ', ',
                case
                    when now.demand = 'none' or earlier.demand = 'none' then 'one of the weeks has no usable traffic'
                    else format(
                        '{} asks {} replicas after {}', now.demand_text, figure_text(now.demand_replicas),
                        figure_text(earlier.demand_replicas)
                    ) || if(now.demand = earlier.demand, '', ' for ' || earlier.demand_text)
                end,
                if(
                    now.spare_replicas <> earlier.spare_replicas,
                    format('{} spare after {}', now.spare_replicas, earlier.spare_replicas), null
                ),
                format('{} lies {}side last week''s interval ', now.needed_gpus, if(is_in_interval, 'in', 'out'))
                || if(
                    earlier.low_gpus = earlier.high_gpus, cast(earlier.low_gpus as varchar),
                    format('{}–{}', earlier.low_gpus, earlier.high_gpus)
                )
            )
    end as count_text
from counts as now
inner join mart_coverage on now.week = mart_coverage.week
inner join counts as earlier
    on mart_coverage.previous_week = earlier.week and now.deployment_id = earlier.deployment_id
order by now.week, now.deployment_id
