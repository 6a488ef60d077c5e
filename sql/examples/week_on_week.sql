-- How does this week stand against the last? (latest week, by deployment; KV·time once it is planned)
-- no rows: the latest week has no chat requests
select
    this.deployment_id,
    this.week,
    this.previous_week,
    this.requests,
    earlier.requests as previous_requests,
    this.requests_change_factor,
    this.prompt_mean_tokens, this.prompt_change_factor,
    this.output_mean_tokens, this.output_change_factor,
    gib(this.kv_time_byte_s) as kv_time_gib_s, this.kv_time_change_factor,
    this.change_text
from mart_changes as this
left join mart_changes as earlier
    on this.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
where this.week = (select max(mart_coverage.week) from mart_coverage)
order by this.deployment_id
