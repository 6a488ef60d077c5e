-- P95 time to first token: how much of it is queue, how much prefill? (by week and deployment)
-- Quantiles do not add up; the means over the slowest 5 % do.
-- no rows: no attempt that ended well has both its time to first token and its time in the queue (queue_s) in the log
with timed as (
    select
        week, deployment_id, ttft_s, queue_s, ttft_s - queue_s as prefill_s,
        quantile_cont(ttft_s, 0.95) over (partition by week, deployment_id) as ttft_p95_s
    from fct_attempts
    where not is_failed and ttft_s is not null and queue_s is not null
)

select
    week, deployment_id,
    count(*) as timed_requests,
    max(ttft_p95_s) as ttft_p95_s,
    quantile_cont(queue_s, 0.95) as queue_p95_s,
    quantile_cont(prefill_s, 0.95) as prefill_p95_s,
    avg(ttft_s) filter (where ttft_s >= ttft_p95_s) as slowest_ttft_mean_s,
    avg(queue_s) filter (where ttft_s >= ttft_p95_s) as slowest_queue_mean_s,
    avg(prefill_s) filter (where ttft_s >= ttft_p95_s) as slowest_prefill_mean_s
from timed
group by week, deployment_id
order by week, deployment_id
