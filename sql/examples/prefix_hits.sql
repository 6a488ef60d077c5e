-- Which share of each tenant's prompt tokens was found in the prefix cache? (latest week; where the log says)
-- no rows: no attempt of the latest week says how many of its prompt tokens were cached
select
    coalesce(tenant, '(none)') as tenant,
    count(*) as attempts_requests,
    sum(prompt_tokens) as prompt_total_tokens,
    sum(cached_prompt_tokens) as cached_total_tokens,
    cached_total_tokens / prompt_total_tokens as prefix_hit_ratio
from fct_attempts
where
    cached_prompt_tokens is not null and prompt_tokens is not null
    and week = (select max(dist_coverage.week) from dist_coverage)
group by all
order by prompt_total_tokens desc, tenant asc
