-- Whether settings, as typed for a what-if, change only how traffic is served: nothing promised, asked or assumed
-- example: select is_lever('max_model_len=65536, router=round_robin')
create or replace macro is_lever(settings_text) as (
    list_has_all(
        [
            'name', 'version', 'tensor_parallel_size', 'pipeline_parallel_size', 'data_parallel_size',
            'decode_context_parallel_size', 'enable_expert_parallel', 'max_model_len', 'max_num_seqs',
            'max_num_batched_tokens', 'gpu_memory_utilization', 'kv_cache_dtype', 'kv_cache_memory_bytes', 'block_size',
            'disable_hybrid_kv_cache_manager', 'enable_prefix_caching', 'enable_chunked_prefill', 'async_scheduling',
            'long_prefill_token_threshold', 'gpu', 'router', 'affinity_slack_requests', 'prefix_caching_by',
            'reserve_full_prompt', 'lone_request_exempt', 'watermark_ratio', 'tool_wait_policy'
        ],
        regexp_extract_all(settings_text, '(?:^|, )(\w+)=', 1)
    )
)
