-- Mean KV bytes of a request while its tokens go evenly from one count to another, not rounded; NULL if one is unknown
-- unit: bytes
-- example: select kv_mean_bytes('chat', 8192, 10240)
-- noqa: disable=RF03,AL05
create or replace macro kv_mean_bytes(deployment_id, from_tokens, to_tokens) as (
    select
        sum(held.fixed_bytes + held.bytes_per_block / held.block_tokens * case
            when to_tokens = from_tokens then least(from_tokens, held.most_tokens)
            else (
                least(to_tokens, held.most_tokens) ** 2 - least(from_tokens, held.most_tokens) ** 2
                + 2 * held.most_tokens
                * (greatest(to_tokens, held.most_tokens) - greatest(from_tokens, held.most_tokens))
            ) / (2 * (to_tokens - from_tokens))
        end)
    from (
        select
            held_id, block_tokens, bytes_per_block, fixed_bytes,
            coalesce(max_blocks * block_tokens, 1e15) as most_tokens
        from dim_kv_groups as groups (held_id)
    ) as held
    where held.held_id = deployment_id and least(from_tokens, to_tokens) >= 0 and from_tokens + to_tokens is not null
)
