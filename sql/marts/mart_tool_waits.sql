-- One row per week, deployment and kind of gap: how long they take, and what KV tool waits would hold if pinned.
-- grain: week, deployment_id, kind
select
    this.week, this.deployment_id, this.kind, this.waits_requests, this.unknown_requests,
    this.wait_mean_s, this.wait_p50_s, this.wait_p90_s, this.wait_p95_s, this.wait_p99_s,
    this.wait_max_s, this.wait_total_s, this.logged_ratio, this.overlap_requests, this.disagreement_requests,
    pinned.kv_time_byte_s as tool_wait_kv_time_byte_s,
    pinned.kv_time_byte_s / nullif(held.kv_time_byte_s, 0) as tool_wait_kv_time_factor,
    earlier.wait_p50_s as previous_wait_p50_s,
    this.wait_p50_s / nullif(earlier.wait_p50_s, 0) - 1 as p50_change_factor
from dist_tool_waits as this
inner join mart_coverage on this.week = mart_coverage.week
left join mart_kv_time as pinned
    on
        this.week = pinned.week and this.deployment_id = pinned.deployment_id
        and this.kind = 'tool' and pinned.phase = 'tool_wait' and pinned.tenant = '(all)'
left join mart_kv_time as held
    on
        this.week = held.week and this.deployment_id = held.deployment_id
        and held.phase = '(all)' and held.tenant = '(all)'
left join dist_tool_waits as earlier
    on
        mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
        and this.kind = earlier.kind
order by this.week, this.deployment_id, this.kind
