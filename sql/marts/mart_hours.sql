-- One row per week, deployment and hour of the week: the weekly rhythm, beside the previous week.
-- grain: week, deployment_id, hour_of_week
select
    this.week, this.deployment_id, this.hour_of_week, this.requests,
    earlier.requests as previous_requests
from dist_hours as this
inner join mart_coverage on this.week = mart_coverage.week
left join dist_hours as earlier
    on
        mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
        and this.hour_of_week = earlier.hour_of_week
order by this.week, this.deployment_id, this.hour_of_week
