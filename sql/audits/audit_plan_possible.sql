-- One row per planned residency or KV·time that cannot be: none may exist.
-- grain: relation, week, deployment_id
select
    'plan_residency' as relation, week, deployment_id, phase,
    residency_mean_bytes as value, residency_max_bytes as bound
from plan_residency
where
    residency_mean_bytes < 0 or residency_mean_bytes > residency_max_bytes * (1 + 1e-9) + 1
    or block_mean_bytes < 0
union all
select 'plan_kv_time' as relation, week, deployment_id, phase, kv_time_byte_s as value, kv_shared_time_byte_s as bound
from plan_kv_time
where kv_time_byte_s < 0 or kv_shared_time_byte_s < 0 or attempts_requests < 0
