-- One row per week, deployment, log2 prompt bin, output length and reason for its end: answers of that kind, counted.
-- grain: week, deployment_id, prompt_bin_low_tokens, output_tokens, reason
-- incremental: week
-- Why an output ended: what cut it, or 'none' where the model came to its own end.
with answers as (
    select
        requests.week,
        coalesce(requests.deployment_id, '(none)') as deployment_id,
        if(requests.prompt_tokens > 0, cast(pow(2, floor(log2(requests.prompt_tokens))) as bigint), 0)
            as prompt_bin_low_tokens,
        requests.output_tokens,
        case
            when requests.is_failed then 'aborted'
            when requests.prompt_tokens + requests.output_tokens >= deployments.max_model_len_tokens - 1
                then 'model_limit'
            when requests.status = 'length' then 'caller_limit'
            when requests.finish_reason is null and requests.output_tokens >= requests.requested_output_tokens
                then 'caller_limit'
            else 'none'
        end as reason
    from fct_requests as requests
    left join dim_deployments as deployments on requests.deployment_id = deployments.deployment_id
    where requests.is_backend and requests.prompt_tokens is not null and requests.output_tokens is not null
)

select week, deployment_id, prompt_bin_low_tokens, output_tokens, reason, count(*) as requests
from answers
group by all
