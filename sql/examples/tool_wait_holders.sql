-- Who would hold most KV·time in tool waits, were contexts kept through them? (latest week)
-- no rows: no session of the latest week has a tool wait whose length and tokens are known
with waits as (
    select
        coalesce(tenant, '(none)') as tenant, deployment_id, wait_s,
        kv_time(deployment_id, prior_context_tokens, 0, wait_s) as kv_time_byte_s
    from fct_tool_waits
    where
        kind = 'tool' and wait_s is not null and prior_context_tokens is not null
        and week = (select max(dist_coverage.week) from dist_coverage)
)

select
    tenant, deployment_id,
    count(*) as waits_requests,
    sum(wait_s) as wait_total_s,
    gib(sum(kv_time_byte_s)) as kv_time_gib_s,
    sum(kv_time_byte_s) / sum(sum(kv_time_byte_s)) over () as share_ratio
from waits
group by all
order by kv_time_gib_s desc, tenant asc, deployment_id asc
limit 20
