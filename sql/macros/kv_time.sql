-- KV·time of one request: growing from its cached prefix through prefill, then through decode, not rounded to blocks
-- unit: byte-seconds
-- example: select gib(kv_time('chat', 8192, 2048, 40.96))
create or replace macro kv_time(
    deployment_id, prompt_tokens, output_tokens, decode_s, cached_tokens := 0, prefill_s := 0
) as (
    case
        when prefill_s >= 0 and decode_s >= 0
            then
                kv_mean_bytes(deployment_id, coalesce(cached_tokens, 0), prompt_tokens) * prefill_s
                + kv_mean_bytes(deployment_id, prompt_tokens, prompt_tokens + output_tokens) * decode_s
    end
)
