-- One row per deployment of the fleet file: engine, objective, price and memory.
-- grain: deployment_id
select
    deployment_id, model_id, gpu_id,
    engine_name, engine_version, tensor_parallel_size, pipeline_parallel_size, data_parallel_size,
    replicas, gpus_per_replica_gpus,
    max_model_len_tokens, max_num_seqs_requests, max_num_batched_tokens,
    gpu_memory_utilization_ratio, kv_cache_dtype, has_prefix_caching,
    slo_ttft_p95_s, slo_tpot_p95_s, slo_window_s, gpu_price_usd_per_hour,
    gpu_memory_bytes, weights_bytes, activation_bytes, non_torch_bytes,
    kv_capacity_bytes, kv_capacity_tokens, kv_token_bytes, memory_provenance
from raw_deployments
order by deployment_id
