"""The KV account of TensorRT-LLM: whole blocks of a share of the memory that is free once the engine is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.errors import ConfigError
from transforms.planner.memory.kv_layers import all_caches, fullest_stage, state_bytes, token_bytes
from transforms.planner.memory.kv_result import KvAccount, KvGroup, KvWorking
from transforms.planner.model.layer_state import StateLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.memory.kv_versions import Version
    from transforms.planner.model.model_shape import ModelShape

BLOCK_TOKENS = {(0, 9): 64, (1, 0): 32}  # tokens_per_block, by the first version with it


def tensorrt_llm_account(
    shape: ModelShape, engine: Engine, version: Version, kv: KvFormat, available_bytes: int
) -> KvAccount:
    """KV account of TensorRT-LLM with `available_bytes` a GPU, the free-memory share already taken."""
    block = engine.block_size or [size for since, size in BLOCK_TOKENS.items() if since <= version][-1]
    tp = engine.tensor_parallel_size
    cell = sum(token_bytes(cache, kv) for cache in fullest_stage(shape, engine, kv))
    replica_cell = sum(token_bytes(cache, kv) for cache in all_caches(shape, engine)) * tp
    if not cell:
        raise ConfigError(f"{shape.where}: no layer keeps KV; there is nothing to account for")
    blocks = available_bytes // (block * cell)
    length = engine.max_model_len or shape.max_position_embeddings
    states = sum(state_bytes(cache, kv) for cache in all_caches(shape, engine) if isinstance(cache, StateLayer))
    groups = [KvGroup("full", block, None, replica_cell * block)]
    if states:
        groups.append(KvGroup("state", block, 0, 0, states * tp))
    return KvAccount(
        engine=engine.name,
        engine_version=f"{version[0]}.{version[1]}",
        rule=f"TensorRT-LLM: whole blocks of {block} tokens, every attention layer in full",
        gpus=tp * engine.pipeline_parallel_size,
        available_bytes_per_gpu=available_bytes,
        bytes_per_token_per_gpu=cell,
        bytes_per_token=replica_cell,
        block_size_tokens=block,
        num_blocks=blocks,
        bytes_per_block_per_gpu=block * cell,
        bytes_per_block=block * replica_cell,
        reported_tokens=blocks * block,
        capacity_tokens=blocks * block,
        max_model_len=length,
        blocks_per_request=None if length is None else -(-length // block),
        max_concurrency=None if length is None else blocks * block / length,
        starts=0 < (length or 1) <= blocks * block,
        largest_max_model_len=blocks * block,
        state_pool_bytes=0,
        groups=tuple(groups),
        working=KvWorking(f"{block:,} tokens × {cell:,} bytes", "", "blocks × block", "tokens ÷ max_model_len"),
    )
