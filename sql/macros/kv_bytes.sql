-- KV bytes of one request that holds this many tokens, in whole blocks, over all GPUs of its engine; NULL if unknown
-- unit: bytes
-- example: select kv_bytes('chat', 8192)
-- noqa: disable=RF03,AL05
create or replace macro kv_bytes(deployment_id, tokens) as (
    select
        cast(sum(
            held.fixed_bytes
            + least(ceil(tokens / held.block_tokens), coalesce(held.max_blocks, ceil(tokens / held.block_tokens)))
            * held.bytes_per_block
        ) as bigint)
    from dim_kv_groups as held (held_id)
    where held.held_id = deployment_id and tokens >= 0
)
