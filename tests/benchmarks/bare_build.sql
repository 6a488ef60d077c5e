-- The tables and aggregates of a build, written by hand for DuckDB as an analyst would who knows this lake: one deployment
-- a name, no typing, no cleaning, no retries to pair, no comments, no audits. `lake` is a view on its Parquet files.
create table requests as
select
    request_id, attempt, session_id, agent_id, turn, strftime(arrived_at, '%G-W%V') as week,
    cast(arrived_at as date) as arrival_date, arrived_at,
    arrived_at + to_microseconds(cast(round(e2e_s * 1e6) as bigint)) as ended_at,
    case when model like 'chat-%' then 'chat' else 'code' end as deployment_id, model, tenant, operation, served_by,
    replica_id, status, finish_reason, prompt_tokens, cached_prompt_tokens, cache_write_tokens, output_tokens,
    reasoning_tokens, requested_output_tokens, choices, queue_s, ttft_s, e2e_s, tool_calls, tool_results,
    logged_tool_wait_s, prefix_block_tokens, prefix_block_ids, source, source_file, source_position,
    operation = 'chat' as is_chat, operation = 'chat' and served_by = 'backend' as is_backend, flags
from lake;

create table facts as
select
    request_id, source, session_id, agent_id, turn, week, arrival_date, arrived_at, ended_at, deployment_id, model, tenant,
    served_by, status, finish_reason, 1 as attempts, prompt_tokens, cached_prompt_tokens, output_tokens, reasoning_tokens,
    requested_output_tokens, queue_s, ttft_s, e2e_s,
    (e2e_s - ttft_s) / nullif(greatest(output_tokens / coalesce(choices, 1) - 1, 0), 0) as tpot_s,
    tool_calls, tool_results, logged_tool_wait_s, status not in ('ok', 'length') as is_failed, is_backend, false as has_retry
from requests where is_chat;

create table attempts as
select
    request_id, attempt, source, session_id, agent_id, turn, week, arrival_date, arrived_at, ended_at, deployment_id, model,
    tenant, replica_id, status, finish_reason, prompt_tokens, cached_prompt_tokens, output_tokens, reasoning_tokens,
    requested_output_tokens, choices, queue_s, ttft_s, e2e_s,
    (e2e_s - ttft_s) / nullif(greatest(output_tokens / coalesce(choices, 1) - 1, 0), 0) as tpot_s,
    status not in ('ok', 'length') as is_failed, prefix_block_tokens, prefix_block_ids, flags
from requests where is_backend;

create table waits as
select
    session_id, agent_id, turn, source, request_id, week, arrived_at, deployment_id, model, tenant,
    lag(request_id) over agent as prior_request_id, lag(ended_at) over agent as prior_ended_at,
    if(lag(not is_failed and (coalesce(tool_calls, 0) > 0 or finish_reason = 'tool_calls')) over agent, 'tool', 'user') as kind,
    epoch(arrived_at - lag(ended_at) over agent) as stamped_wait_s, greatest(stamped_wait_s, 0) as wait_s,
    lag(if(is_failed, null, prompt_tokens + output_tokens) ignore nulls) over agent as prior_context_tokens,
    stamped_wait_s < 0 as is_overlap
from facts where session_id is not null
window agent as (partition by source, session_id, agent_id order by turn, arrived_at, request_id)
qualify prior_request_id is not null;

create table sessions as
select
    source, session_id, min(week) as week, mode(deployment_id) as deployment_id, any_value(tenant) as tenant,
    count(*) as turns, count(distinct coalesce(agent_id, '')) as agents, min(arrived_at) as started_at,
    max(ended_at) as ended_at, max(prompt_tokens) as prompt_max, sum(output_tokens) as output
from facts where session_id is not null group by source, session_id;

create table waits_of_sessions as
select source, session_id, kind, sum(cast(wait_s as decimal(18, 6))) as wait_s, bool_or(is_overlap) as has_overlap
from waits group by all;

create table seconds as
select
    week, deployment_id, date_trunc('second', arrived_at) as second_at, count(*) as requests,
    count(*) filter (where served_by <> 'gateway_cache') as backend_requests, min(arrived_at) as first_at, max(arrived_at) as last_at
from facts group by all;

create table prompt_quantiles as
select week, deployment_id, model, count(*) as n, avg(prompt_tokens) as mean, max(prompt_tokens) as largest,
    quantile_cont(prompt_tokens, [0.5, 0.75, 0.9, 0.95, 0.99, 0.999]) as q
from facts where is_backend group by grouping sets ((week, deployment_id, model), (week, deployment_id), (week));

create table output_quantiles as
select week, deployment_id, model, count(*) as n, avg(output_tokens) as mean, max(output_tokens) as largest,
    quantile_cont(output_tokens, [0.5, 0.75, 0.9, 0.95, 0.99, 0.999]) as q, count(*) filter (where status = 'length') as cut
from facts where is_backend group by grouping sets ((week, deployment_id, model), (week, deployment_id), (week));

create table tenant_quantiles as
select week, tenant, count(*) as n, quantile_cont(prompt_tokens, [0.5, 0.9, 0.99]) as p, quantile_cont(output_tokens, [0.5, 0.9, 0.99]) as o
from facts where is_backend group by all;

create table latency as
select
    week, deployment_id, count(*) as n, count(*) filter (where is_failed) as failed,
    quantile_cont(queue_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as queue,
    quantile_cont(ttft_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as ttft,
    quantile_cont(tpot_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as tpot,
    quantile_cont(e2e_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as e2e,
    quantile_cont(if(is_failed, 'inf'::double, ttft_s), 0.95) as ttft_all,
    quantile_cont(if(is_failed, 'inf'::double, e2e_s), 0.95) as e2e_all
from facts group by grouping sets ((week, deployment_id), (week));

create table group_latency as
select
    week, model, tenant, count(*) as n, count(*) filter (where is_failed) as failed,
    quantile_cont(queue_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as queue,
    quantile_cont(ttft_s - queue_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as prefill,
    quantile_cont(ttft_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as ttft,
    quantile_cont(tpot_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as tpot,
    quantile_cont(e2e_s, [0.5, 0.9, 0.95, 0.99]) filter (where not is_failed) as e2e,
    quantile_cont(if(is_failed, 'inf'::double, ttft_s), 0.95) as ttft_all,
    quantile_cont(if(is_failed, 'inf'::double, e2e_s), 0.95) as e2e_all
from facts group by grouping sets ((week, model), (week, tenant));

create table gaps as
with us as (
    select week, deployment_id, epoch_us(arrived_at) as us from facts where served_by <> 'gateway_cache'
), gap as (
    select week, deployment_id, us - lag(us) over (partition by week, deployment_id order by us) as gap from us
    union all
    select week, '(all)', us - lag(us) over (partition by week order by us) from us
)
select week, deployment_id, avg(gap) as mean, stddev_pop(gap) / avg(gap) as cv, count(*) filter (where gap = 0) as zeros,
    median(gap) filter (where gap > 0) as step
from gap where gap <= 3600000000 group by all;

create table group_gaps as
with us as (
    select week, model, tenant, epoch_us(arrived_at) as us from facts where served_by <> 'gateway_cache'
), gap as (
    select week, 'model' as kind, model as member, us - lag(us) over (partition by week, model order by us) as gap from us
    union all
    select week, 'tenant', tenant, us - lag(us) over (partition by week, tenant order by us) from us
)
select week, kind, member, avg(gap) as mean, stddev_pop(gap) / avg(gap) as cv from gap where gap <= 3600000000 group by all;

create table group_hours as
with quarters as (
    select week, model, tenant, time_bucket(interval 15 minute, arrived_at) as at_, count(*) as n
    from facts where served_by <> 'gateway_cache' group by all
), each as (
    select week, 'model' as kind, model as member, at_, n from quarters
    union all select week, 'tenant', tenant, at_, n from quarters
)
select week, kind, member, hour(at_) + 24 * (isodow(at_) - 1) as hour_of_week, sum(n) as n from each group by all;

create table arrivals as
with windows as (
    select week, d as deployment_id, w as window_s, time_bucket(to_seconds(w), second_at) as at_, sum(backend_requests) as n
    from (select week, second_at, backend_requests, unnest([deployment_id, '(all)']) as d from seconds), (select unnest([1, 10, 60, 300, 3600]) as w)
    group by all
)
select week, deployment_id, window_s, sum(n) as n, max(n) as peak, arg_max(at_, n) as peak_at, var_pop(n) / avg(n) as dispersion
from windows group by all;

create table group_arrivals as
with second as (
    select 'model' as kind, model as member, date_trunc('second', arrived_at) as at_, count(*) as n from facts group by all
    union all
    select 'tenant', tenant, date_trunc('second', arrived_at), count(*) from facts group by all
), ten as (select kind, member, time_bucket(interval 10 second, at_) as at_, sum(n) as n from second group by all),
minute as (select kind, member, date_trunc('minute', at_) as at_, sum(n) as n from ten group by all),
five as (select kind, member, time_bucket(interval 5 minute, at_) as at_, sum(n) as n from minute group by all),
hour as (select kind, member, date_trunc('hour', at_) as at_, sum(n) as n from five group by all)
select w, kind, member, date_trunc('week', at_) as week_at, sum(n) as n, max(n) as peak, var_pop(n) / avg(n) as dispersion
from (
    select 1 as w, * from second union all select 10, * from ten union all select 60, * from minute
    union all select 300, * from five union all select 3600, * from hour
) group by all;

create table in_flight as
with events as (
    select deployment_id, arrived_at as t, 1 as d from attempts where ended_at is not null
    union all
    select deployment_id, ended_at, -1 from attempts where ended_at is not null
), changes as (
    select deployment_id, time_bucket(interval 5 minute, t) as at_, sum(d) as d, sum(d * (300000000 - epoch_us(t) % 300000000)) as us
    from events group by grouping sets ((deployment_id, at_), (at_))
)
select deployment_id, at_, sum(d) over w - d + us / 3e8 as mean, sum(d) over w as left_
from changes window w as (partition by deployment_id order by at_);

create table five_minutes as
select week, deployment_id, time_bucket(interval 5 minute, arrived_at) as at_, count(*) as n, sum(prompt_tokens) as p, sum(output_tokens) as o
from facts group by grouping sets ((week, deployment_id, at_), (week, at_));

create table hours as
select week, deployment_id, hour(second_at) + 24 * (isodow(second_at) - 1) as hour_of_week, sum(backend_requests) as n
from seconds group by grouping sets ((week, deployment_id, hour_of_week), (week, hour_of_week));

create table length_counts as
select week, deployment_id, 'prompt' as measure, prompt_tokens as length, count(*) as n from facts
group by grouping sets ((week, deployment_id, prompt_tokens), (week, prompt_tokens))
union all
select week, deployment_id, 'output', output_tokens, count(*) from facts
group by grouping sets ((week, deployment_id, output_tokens), (week, output_tokens));

create table length_bins as
select week, deployment_id, measure, if(length > 0, floor(log2(length)), -1) as bin, sum(n) as n, sum(n * ln(greatest(length, 1))) as logs
from length_counts group by all;

create table joint_bins as
select week, deployment_id, floor(log2(greatest(prompt_tokens, 1))) as p, floor(log2(greatest(output_tokens, 1))) as o, count(*) as n
from facts group by grouping sets ((week, deployment_id, p, o), (week, p, o));

create table group_length_counts as
select week, model, tenant, prompt_tokens, output_tokens, count(*) as n from facts where is_backend
group by grouping sets (
    (week, model, prompt_tokens), (week, model, output_tokens), (week, tenant, prompt_tokens), (week, tenant, output_tokens)
);

create table group_length_bins as
select week, model, tenant, output_tokens is null as is_prompt, floor(log2(greatest(coalesce(prompt_tokens, output_tokens), 1))) as bin,
    sum(n) as n, sum(n * ln(greatest(coalesce(prompt_tokens, output_tokens), 1))) as logs
from group_length_counts group by all;

create table group_joint_bins as
select week, model, tenant, floor(log2(greatest(prompt_tokens, 1))) as p, floor(log2(greatest(output_tokens, 1))) as o, count(*) as n
from facts where is_backend group by grouping sets ((week, model, p, o), (week, tenant, p, o));

create table output_ends as
select week, deployment_id, floor(log2(greatest(prompt_tokens, 1))) as p, output_tokens, status, finish_reason, count(*) as n
from facts where is_backend group by all;

create table correlation as
select week, deployment_id, corr(prompt_tokens, output_tokens) as r, corr(ln(greatest(prompt_tokens, 1)), ln(greatest(output_tokens, 1))) as log_r
from facts group by grouping sets ((week, deployment_id), (week));

create table wait_quantiles as
select week, deployment_id, kind, count(*) as n, sum(cast(wait_s as decimal(18, 6))) as total, max(wait_s) as largest,
    quantile_cont(wait_s, [0.5, 0.9, 0.95, 0.99]) as q, count(*) filter (where is_overlap) as overlaps
from waits group by grouping sets ((week, deployment_id, kind), (week, kind));

create table wait_bins as
select week, deployment_id, kind, if(wait_s >= 1, floor(log2(wait_s)), -1) as bin, count(*) as n from waits
group by grouping sets ((week, deployment_id, kind, bin), (week, kind, bin));

create table session_quantiles as
select week, deployment_id, count(*) as n, quantile_cont(turns, [0.5, 0.9, 0.99]) as turns, quantile_cont(prompt_max, [0.5, 0.99]) as prompts,
    quantile_cont(epoch(ended_at - started_at), [0.5, 0.99]) as spans
from sessions group by grouping sets ((week, deployment_id), (week));

create table quality as
select week, source, source_file, count(*) as n, avg(cast(prompt_tokens is null as int)) as p, avg(cast(output_tokens is null as int)) as o,
    avg(cast(ttft_s is null as int)) as t, avg(cast(e2e_s is null as int)) as e, avg(cast(model is null as int)) as m,
    avg(cast(session_id is null as int)) as s
from requests where is_chat group by all;

create table served as
select week, deployment_id, model, count(*) as n, count(distinct source_file) as files from requests group by all;
