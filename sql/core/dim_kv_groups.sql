-- One row per group of layers with one kind of KV cache: what the account of the deployment's KV bytes is made of.
-- grain: deployment_id, kv_group
select deployment_id, kv_group, block_tokens, max_blocks, bytes_per_block, fixed_bytes
from raw_kv_groups
order by deployment_id, kv_group
