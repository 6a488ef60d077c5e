-- One row per week, deployment and reason: what ended outputs (a limit, a failure or nothing), beside the last week.
-- grain: week, deployment_id, reason
select
    this.week, this.deployment_id, this.reason,
    case this.reason
        when 'none' then 'the model came to its own end'
        when 'caller_limit' then 'the caller''s limit (censored)'
        when 'model_limit' then 'max_model_len (censored)'
        when 'aborted' then 'failed on the way (censored)'
        else this.reason
    end as reason_text,
    this.requests, this.share_ratio, this.output_total_tokens, this.output_max_tokens,
    earlier.share_ratio as previous_share_ratio
from dist_output_limits as this
inner join mart_coverage on this.week = mart_coverage.week
left join dist_output_limits as earlier
    on
        mart_coverage.previous_week = earlier.week and this.deployment_id = earlier.deployment_id
        and this.reason = earlier.reason
order by this.week, this.deployment_id, this.reason
