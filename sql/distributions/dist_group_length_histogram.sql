-- One row per week, grouping (model or tenant), member, measure and log2 bin that holds requests; bin 0 holds 0 alone.
-- grain: week, grouping_name, member, measure, bin_low_tokens
-- incremental: week
with binned as (
    select
        week, grouping_name, member, measure,
        if(length_tokens > 0, cast(pow(2, floor(log2(length_tokens))) as bigint), 0) as bin_low_tokens,
        cast(sum(requests) as bigint) as requests
    from dist_group_length_counts
    group by all
),

-- outputs that something cut, as fct_output_ends has it, which knows neither model nor tenant
cut as (
    select
        requests.week, coalesce(requests.model, '(none)') as model, coalesce(requests.tenant, '(none)') as tenant,
        if(requests.output_tokens > 0, cast(pow(2, floor(log2(requests.output_tokens))) as bigint), 0)
            as bin_low_tokens,
        count(*) as requests
    from fct_requests as requests
    left join dim_deployments as deployments on requests.deployment_id = deployments.deployment_id
    where
        requests.is_backend and requests.prompt_tokens is not null and requests.output_tokens is not null
        and (
            requests.is_failed or requests.status = 'length'
            or requests.prompt_tokens + requests.output_tokens >= deployments.max_model_len_tokens - 1
            or (requests.finish_reason is null and requests.output_tokens >= requests.requested_output_tokens)
        )
    group by all
),

members as (
    select
        week, if(grouping(tenant) = 1, 'model', 'tenant') as grouping_name, coalesce(model, tenant) as member,
        'output' as measure, bin_low_tokens, cast(sum(requests) as bigint) as requests
    from cut
    group by grouping sets ((week, model, bin_low_tokens), (week, tenant, bin_low_tokens))
)

select
    binned.week, binned.grouping_name, binned.member, binned.measure, binned.bin_low_tokens,
    greatest(2 * binned.bin_low_tokens, 1) as bin_high_tokens,
    binned.requests,
    if(binned.measure = 'output', coalesce(members.requests, 0), null) as censored_requests
from binned
left join members
    on
        binned.week = members.week and binned.grouping_name = members.grouping_name
        and binned.member = members.member and binned.measure = members.measure
        and binned.bin_low_tokens = members.bin_low_tokens
order by binned.week, binned.grouping_name, binned.member, binned.measure, binned.bin_low_tokens
