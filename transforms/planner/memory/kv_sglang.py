"""The KV account of SGLang: a token pool in pages, a smaller pool for windowed layers, slots for states."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from transforms.errors import CapacityError, ConfigError
from transforms.planner.memory.kv_layers import (
    all_caches,
    layers_with_drafter,
    pipeline_stages,
    state_bytes,
    token_bytes,
)
from transforms.planner.memory.kv_result import KvAccount, KvGroup, KvWorking
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.memory.kv_versions import Version
    from transforms.planner.model.model_shape import Layer, ModelShape

WINDOW_TOKENS_RATIO = Fraction(4, 5)  # server_args.py swa_full_tokens_ratio
STATE_MEMORY_RATIO = Fraction(9, 10)  # server_args.py mamba_full_memory_ratio
SPARSE_PAGE_TOKENS = 64  # server_args.py: sparse MLA kernels want pages of 64 tokens
WINDOW_POOLS_SINCE = (0, 5)
SLOTS_PER_REQUEST = 3  # kv_cache_configurator.py: a running request needs so many slots while prefixes are cached


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
    page = engine.block_size or (SPARSE_PAGE_TOKENS if shape.has_indexer else 1)
    layers = layers_with_drafter(shape, engine)
    has_window_pool = _has_window_pool(all_caches(shape, engine), version)
    stages = [
        _stage(
            _pools(caches, kv, has_window_pool=has_window_pool),
            engine,
            available_bytes,
            shape.where,
            holds_states=holds_states,
        )
        for caches in pipeline_stages(layers, len(shape.layers), engine.pipeline_parallel_size)
    ]
    tight = min((stage for stage in stages if stage.pools.cell_bytes), key=lambda stage: stage.tokens, default=None)
    if tight is None:
        raise ConfigError(f"{shape.where}: no layer keeps KV; there is nothing to account for")
    pools, room = tight.pools, min(stages, key=lambda stage: stage.room.slots or available_bytes).room
    slots = room.slots or None
    replica = _pools(all_caches(shape, engine), kv, has_window_pool=has_window_pool)
    tokens = tight.tokens // page * page
    tp = engine.tensor_parallel_size
    length = engine.max_model_len or shape.max_position_embeddings
    return KvAccount(
        engine=engine.name,
        engine_version=f"{version[0]}.{version[1]}",
        rule=_rule(replica, room),
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
        state_bytes_per_gpu=tight.room.taken_bytes,
        working=_working(tight, page),
    )


@dataclass(frozen=True)
class StateRoom:
    """State slots of a GPU, copies of states that drafts are tried on, and bytes of both; 0 slots where none count."""

    slots: int = 0
    draft_copies: int = 0
    taken_bytes: int = 0


@dataclass(frozen=True)
class Stage:
    """A GPU of one pipeline stage: its pools, its states, and the tokens its memory holds beside them."""

    pools: Pools
    room: StateRoom
    tokens: int


def _stage(pools: Pools, engine: Engine, available_bytes: int, where: str, *, holds_states: bool) -> Stage:
    has_states = holds_states and pools.state_bytes > 0
    room = _state_room(available_bytes, pools.state_bytes, engine, where) if has_states else StateRoom()
    tokens = int((available_bytes - room.taken_bytes) // pools.cell_bytes) if pools.cell_bytes else 0
    return Stage(pools, room, tokens)


def _working(stage: Stage, page: int) -> KvWorking:
    pools, room = stage.pools, stage.room
    cell = f"{pools.full_bytes:,} bytes" if page > 1 else ""
    if pools.window_bytes:
        cell = f"{pools.full_bytes:,} + {float(WINDOW_TOKENS_RATIO)} × {pools.window_bytes:,} bytes"
    copies = f" + {room.draft_copies} copies for drafts" if room.draft_copies else ""
    states = f"({room.slots} slots + 1{copies}) × {pools.state_bytes:,} bytes" if room.slots else ""
    limit = ", never more than the slots" if room.slots else ""
    return KvWorking(
        block=f"{page:,} × ({cell})" if page > 1 else cell,
        states=states,
        printed="blocks × block",
        concurrency=f"tokens ÷ max_model_len{limit}",
    )


def _has_window_pool(caches: tuple[Layer, ...], version: Version) -> bool:
    """Whether windowed layers of the model have a pool of their own: not where all layers have a window."""
    attention = [cache for cache in caches if not isinstance(cache, StateLayer)]
    return version >= WINDOW_POOLS_SINCE and not all(_is_windowed(cache) for cache in attention)


def _is_windowed(cache: Layer) -> bool:
    return isinstance(cache, AttentionLayer) and bool(cache.window_tokens or cache.chunk_tokens)


def _pools(caches: tuple[Layer, ...], kv: KvFormat, *, has_window_pool: bool) -> Pools:
    attention = [cache for cache in caches if not isinstance(cache, StateLayer)]
    windowed = [c for c in attention if has_window_pool and isinstance(c, AttentionLayer) and _is_windowed(c)]
    window_bytes = sum(token_bytes(cache, kv) for cache in windowed)
    return Pools(
        full_bytes=sum(token_bytes(cache, kv) for cache in attention) - window_bytes,
        window_bytes=window_bytes,
        state_bytes=sum(state_bytes(cache, kv) for cache in caches if isinstance(cache, StateLayer)),
        window_tokens=max((c.window_tokens or c.chunk_tokens or 0 for c in windowed), default=0),
    )


def _state_room(rest_bytes: int, request_bytes: int, engine: Engine, where: str) -> StateRoom:
    """Slots in the states' share of the memory; drafts are tried on copies, one a drafted token and request."""
    share_bytes = rest_bytes * STATE_MEMORY_RATIO / (1 + STATE_MEMORY_RATIO)
    copies = 0
    if engine.speculative_tokens:
        drafted = engine.speculative_tokens + 1  # speculative_num_draft_tokens counts the verified token too
        ratio = SLOTS_PER_REQUEST if engine.enable_prefix_caching else 1
        slots = int(share_bytes // (request_bytes * (1 + Fraction(drafted, ratio))))
        copies = min(engine.max_num_seqs, slots // ratio) * drafted
    else:
        slots = int((share_bytes - request_bytes) / request_bytes)
    if slots < 1:
        raise CapacityError(
            f"{where}: {rest_bytes:,} bytes for KV hold no state of {request_bytes:,} bytes; "
            "use more GPUs or a larger one"
        )
    return StateRoom(slots, copies, (slots + 1 + copies) * request_bytes)


def _groups(pools: Pools, page: int, tp: int) -> tuple[KvGroup, ...]:
    groups = [KvGroup("full", page, None, pools.full_bytes * page * tp)]
    if pools.window_bytes:
        held = -(-pools.window_tokens // page)
        groups.append(KvGroup(f"window {pools.window_tokens}", page, held, pools.window_bytes * page * tp))
    if pools.state_bytes:
        groups.append(KvGroup("state", page, 0, 0, pools.state_bytes * tp))
    return tuple(groups)


def _rule(pools: Pools, room: StateRoom) -> str:
    parts = ["SGLang: tokens = bytes ÷ cell in whole pages"]
    if pools.window_bytes:
        parts.append(f"windowed pool of {float(WINDOW_TOKENS_RATIO)} × tokens")
    if pools.state_bytes and not room.slots:
        parts.append("states in a pool of their own")
    elif room.slots:
        copies = f" and {room.draft_copies} copies for drafts" if room.draft_copies else ""
        parts.append(f"{room.slots} state slots{copies} beside the KV")
    return "; ".join(parts)
