-- One row per deployment whose memory on one GPU does not fit it, or is not what its replica is planned with: none.
-- grain: deployment_id, what
with parts as (
    select
        deployment_id,
        sum(value_bytes) filter (where name <> 'gpu_memory_bytes') as taken_bytes,
        sum(value_bytes) filter (where name in ('weights_bytes', 'kv_bytes')) as kept_bytes,
        max(value_bytes) filter (where name = 'kv_bytes') as kv_bytes,
        max(value_bytes) filter (where name = 'gpu_memory_bytes') as gpu_memory_bytes,
        -- an engine that is told the size of its KV cache finds out itself whether the rest still fits
        bool_or(name = 'kv_bytes' and starts_with(source_text, 'kv_cache_memory_bytes')) as is_told
    from dim_memory
    group by deployment_id
)

select
    deployment_id, 'parts on one GPU' as what,
    if(is_told, kept_bytes, taken_bytes) as found_bytes, gpu_memory_bytes as bound_bytes
from parts
where found_bytes > gpu_memory_bytes
union all
select
    replicas.deployment_id, 'KV of a replica' as what,
    replicas.kv_capacity_bytes as found_bytes, parts.kv_bytes * replicas.gpus_per_replica_gpus as bound_bytes
from dim_deployments as replicas
inner join parts on replicas.deployment_id = parts.deployment_id
where found_bytes > bound_bytes
union all
select
    replicas.deployment_id, memory.name as what,
    case memory.name
        when 'gpu_memory_bytes' then replicas.gpu_memory_bytes
        when 'weights_bytes' then replicas.weights_bytes
        when 'activation_bytes' then replicas.activation_bytes
        when 'non_torch_bytes' then replicas.non_torch_bytes
    end as found_bytes,
    memory.value_bytes as bound_bytes
from dim_deployments as replicas
inner join dim_memory as memory on replicas.deployment_id = memory.deployment_id
where found_bytes <> bound_bytes
