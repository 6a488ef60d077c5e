"""The block of an engine that keeps attention and states in one pool: pages of one size, the states padded to it."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

from transforms.planner.memory.kv_layers import state_bytes, token_bytes
from transforms.planner.memory.kv_versions import VLLM_ASCEND
from transforms.planner.model.layer_state import MAMBA_1, MAMBA_2, StateLayer
from transforms.planner.model.model_shape import AttentionLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.memory.kv_versions import VllmRules
    from transforms.planner.model.model_shape import ModelShape

BLOCK_TOKENS = 16  # vLLM config/cache.py DEFAULT_BLOCK_SIZE; FlashAttention's smallest kernel block
LATENT_BLOCK_TOKENS = 64  # FlashMLA and sparse MLA
FLASHINFER_LATENT_BLOCK_TOKENS = 32  # what FlashInfer's MLA kernel takes beside 64
ASCEND_BLOCK_TOKENS = 128

NONE, ALIGN, ALL = "none", "align", "all"
"""How states are kept under prefix caching: not at all, at the last block boundaries, or at every one."""

_WIDE_HEAD = 256
_CACHED_KINDS = frozenset({MAMBA_1, MAMBA_2})  # vLLM SupportsMambaPrefixCaching


@dataclass(frozen=True)
class StatePage:
    """The shared page of a model with states: the block of attention tokens that holds the largest state."""

    block_tokens: int
    page_bytes: int
    state_bytes: int


def block_tokens(shape: ModelShape, engine: Engine, rules: VllmRules, kv: KvFormat) -> int:
    """Tokens of a block of a model without states: what was asked for, else what the kernels prefer."""
    if shape.has_latent and not shape.has_indexer and kv.is_data_centre_blackwell:
        forced = rules.blackwell_latent_block_tokens
        asked = engine.block_size or forced
        is_kept = asked % forced == 0 or (asked, forced) == (FLASHINFER_LATENT_BLOCK_TOKENS, LATENT_BLOCK_TOKENS)
        return asked if is_kept else forced  # vLLM forces the kernel's block (platforms/cuda.py)
    if engine.block_size:
        return engine.block_size
    if engine.name == VLLM_ASCEND:
        return ASCEND_BLOCK_TOKENS
    return LATENT_BLOCK_TOKENS if shape.has_latent else BLOCK_TOKENS


def state_mode(shape: ModelShape, engine: Engine, rules: VllmRules) -> str:
    """How `engine` keeps states at block boundaries: NONE, ALIGN or ALL."""
    if not engine.enable_prefix_caching:
        return NONE
    can_keep_all = all(state.kind in _CACHED_KINDS for state in _states(shape))
    if rules.has_cached_states and can_keep_all and not engine.speculative_tokens:
        return ALL
    return ALIGN if rules.has_aligned_states else NONE


def state_page(shape: ModelShape, engine: Engine, rules: VllmRules, kv: KvFormat) -> StatePage:
    """Page and block of a model with states: the smallest aligned block whose page holds the largest state."""
    state = max(state_bytes(s, kv) for s in _states(shape))
    per_token = max(token_bytes(cache, kv) for layer in shape.layers for cache in layer)
    align = rules.latent_state_block_tokens if shape.has_latent else BLOCK_TOKENS
    if engine.name == VLLM_ASCEND:
        align = ASCEND_BLOCK_TOKENS
    elif kv.is_data_centre_blackwell and any(d == _WIDE_HEAD for d in _head_dims(shape)):
        align = max(align, rules.blackwell_wide_head_tokens)
    if state_mode(shape, engine, rules) == ALL:
        align = lcm(align, *(s.chunk_tokens or 1 for s in _states(shape)))
    tokens = max(align * -(-state // (align * per_token)), engine.block_size or 0)
    return StatePage(tokens, tokens * per_token, state)


def _head_dims(shape: ModelShape) -> set[int]:
    caches = (cache for layer in shape.layers for cache in layer)
    return {cache.key_head_dim for cache in caches if isinstance(cache, AttentionLayer)}


def _states(shape: ModelShape) -> list[StateLayer]:
    return [cache for layer in shape.layers for cache in layer if isinstance(cache, StateLayer)]
