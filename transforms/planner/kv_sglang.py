"""The KV account of SGLang: a token pool in pages, a smaller pool for windowed layers, slots for states."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from transforms.errors import CapacityError
from transforms.planner.kv_layers import all_caches, fullest_stage, state_bytes, token_bytes
from transforms.planner.kv_result import KvAccount, KvGroup
from transforms.planner.layer_state import StateLayer
from transforms.planner.model_shape import AttentionLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.kv_layers import KvFormat
    from transforms.planner.kv_versions import Version
    from transforms.planner.model_shape import Layer, ModelShape

WINDOW_TOKENS_RATIO = Fraction(4, 5)  # server_args.py swa_full_tokens_ratio
STATE_MEMORY_RATIO = Fraction(9, 10)  # server_args.py mamba_full_memory_ratio
SPARSE_PAGE_TOKENS = 64  # server_args.py: sparse MLA kernels want pages of 64 tokens
WINDOW_POOLS_SINCE = (0, 5)


@dataclass(frozen=True)
class Pools:
    """Bytes per token in the full and in the windowed pool, bytes of one request's states, and the longest window."""

    full_bytes: int
    window_bytes: int
    state_bytes: int
    window_tokens: int

    @property
    def cell_bytes(self) -> Fraction:
        """Bytes that a token of capacity costs: the windowed pool has a share of the full pool's tokens."""
        return self.full_bytes + WINDOW_TOKENS_RATIO * self.window_bytes


def sglang_account(
    shape: ModelShape,
    engine: Engine,
    version: Version,
    kv: KvFormat,
    available_bytes: int,
    *,
    holds_states: bool,
) -> KvAccount:
    """KV account of SGLang with `available_bytes` a GPU for its KV pools, the state slots among them if said so."""
    pools = _pools(fullest_stage(shape, engine, kv), version, kv)
    replica = _pools(all_caches(shape, engine), version, kv)
    slots = (
        _state_slots(available_bytes, pools.state_bytes, shape.where) if holds_states and pools.state_bytes else None
    )
    pool_bytes = available_bytes - ((slots or 0) + 1) * pools.state_bytes if slots else available_bytes
    page = engine.block_size or (SPARSE_PAGE_TOKENS if shape.has_indexer else 1)
    tokens = int(pool_bytes // pools.cell_bytes) // page * page
    tp = engine.tensor_parallel_size
    length = engine.max_model_len or shape.max_position_embeddings
    return KvAccount(
        engine=engine.name,
        engine_version=f"{version[0]}.{version[1]}",
        rule=_rule(pools, slots),
        gpus=tp * engine.pipeline_parallel_size,
        available_bytes_per_gpu=available_bytes,
        bytes_per_token_per_gpu=pools.full_bytes + pools.window_bytes,
        bytes_per_token=(replica.full_bytes + replica.window_bytes) * tp,
        block_size_tokens=page,
        num_blocks=tokens // page,
        bytes_per_block_per_gpu=int(pools.cell_bytes * page),
        bytes_per_block=int(replica.cell_bytes * page) * tp,
        reported_tokens=tokens,
        capacity_tokens=int(tokens * WINDOW_TOKENS_RATIO) if pools.window_bytes else tokens,
        max_model_len=length,
        blocks_per_request=None if length is None else -(-length // page),
        max_concurrency=None if length is None else min(tokens / length, slots or tokens / length),
        starts=0 < (length or 1) <= tokens,
        largest_max_model_len=tokens,
        state_pool_bytes=(slots or 0) * replica.state_bytes * tp,
        groups=_groups(replica, page, tp),
    )


def _pools(caches: tuple[Layer, ...], version: Version, kv: KvFormat) -> Pools:
    attention = [cache for cache in caches if not isinstance(cache, StateLayer)]
    windowed = [c for c in attention if isinstance(c, AttentionLayer) and (c.window_tokens or c.chunk_tokens)]
    if version < WINDOW_POOLS_SINCE or len(windowed) == len(attention):
        windowed = []  # one pool holds all layers
    window_bytes = sum(token_bytes(cache, kv) for cache in windowed)
    return Pools(
        full_bytes=sum(token_bytes(cache, kv) for cache in attention) - window_bytes,
        window_bytes=window_bytes,
        state_bytes=sum(state_bytes(cache, kv) for cache in caches if isinstance(cache, StateLayer)),
        window_tokens=max((c.window_tokens or c.chunk_tokens or 0 for c in windowed), default=0),
    )


def _state_slots(rest_bytes: int, request_bytes: int, where: str) -> int:
    share = STATE_MEMORY_RATIO / (1 + STATE_MEMORY_RATIO)
    slots = int((rest_bytes * share - request_bytes) / request_bytes)
    if slots < 1:
        raise CapacityError(
            f"{where}: {rest_bytes:,} bytes for KV hold no state of {request_bytes:,} bytes; "
            "use more GPUs or a larger one"
        )
    return slots


def _groups(pools: Pools, page: int, tp: int) -> tuple[KvGroup, ...]:
    groups = [KvGroup("full", page, None, pools.full_bytes * page * tp)]
    if pools.window_bytes:
        held = -(-pools.window_tokens // page)
        groups.append(KvGroup(f"window {pools.window_tokens}", page, held, pools.window_bytes * page * tp))
    if pools.state_bytes:
        groups.append(KvGroup("state", page, 0, 0, pools.state_bytes * tp))
    return tuple(groups)


def _rule(pools: Pools, slots: int | None) -> str:
    parts = ["SGLang: tokens = bytes ÷ cell in whole pages"]
    if pools.window_bytes:
        parts.append(f"windowed pool of {float(WINDOW_TOKENS_RATIO)} × tokens")
    if pools.state_bytes:
        parts.append("states in a pool of their own" if slots is None else f"{slots} state slots beside the KV")
    return "; ".join(parts)
