"""The one KV account: what a model keeps in an engine's KV memory, whatever the engine and its version."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from transforms.errors import CapacityError
from transforms.planner.memory.kv_layers import (
    SCALE_GROUP,
    all_caches,
    check_parallelism,
    kv_format,
    state_bytes,
    state_values,
    token_bytes,
)
from transforms.planner.memory.kv_result import KvAccount, KvGroup, KvLine
from transforms.planner.memory.kv_sglang import sglang_account
from transforms.planner.memory.kv_tensorrt_llm import tensorrt_llm_account
from transforms.planner.memory.kv_versions import SGLANG, TENSORRT_LLM, VLLM, known_version, vllm_rules
from transforms.planner.memory.kv_vllm import vllm_account
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer, IndexerLayer, LatentLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.model.model_shape import Layer, ModelShape

__all__ = ["KvAccount", "KvGroup", "KvLine", "check_starts", "default_prefix_caching", "kv_account"]


def kv_account(
    shape: ModelShape,
    engine: Engine,
    available_bytes: int,
    *,
    holds_states: bool = False,
    is_data_centre_blackwell: bool = False,
) -> KvAccount:
    """KV account of one engine with `available_bytes` for KV on each GPU; errors say what cannot be.

    `holds_states`: SGLang's state slots come out of `available_bytes` too (they do not in its printed KV pool size).
    `is_data_centre_blackwell`: the GPU is a B200 or its like, whose kernels want other blocks.
    """
    version = known_version(engine.name, engine.version)
    kv = kv_format(shape, engine, version, is_data_centre_blackwell=is_data_centre_blackwell)
    check_parallelism(shape, engine)
    if available_bytes <= 0:
        raise CapacityError(f"{shape.where}: no memory is left for KV; use more GPUs, a larger one or a smaller model")
    if engine.name == SGLANG:
        account = sglang_account(shape, engine, version, kv, available_bytes, holds_states=holds_states)
    elif engine.name == TENSORRT_LLM:
        account = tensorrt_llm_account(shape, engine, version, kv, available_bytes)
    else:
        account = vllm_account(shape, engine, vllm_rules(version), kv, available_bytes)
    return replace(
        account,
        data_parallel_size=engine.data_parallel_size,
        lines=_lines(shape, engine, kv),
        notes=_notes(shape, engine),
    )


def check_starts(account: KvAccount, where: str) -> None:
    """CapacityError naming the largest length that fits, where the engine would not start with this one."""
    if account.starts or account.max_model_len is None:
        return
    raise CapacityError(
        f"{where}: max_model_len {account.max_model_len} does not fit the {account.num_blocks:,} blocks of KV; "
        f"the largest that fits is {account.largest_max_model_len}"
    )


def default_prefix_caching(shape: ModelShape, engine_name: str, version: str | None) -> bool:
    """Whether an engine caches prefixes of this model unless told: models with states only in newer vLLM."""
    found = known_version(engine_name, version)
    if engine_name in (SGLANG, TENSORRT_LLM) or not shape.has_state:
        return True
    return vllm_rules(found).caches_states_by_default


def _lines(shape: ModelShape, engine: Engine, kv: KvFormat) -> tuple[KvLine, ...]:
    lines = []
    for cache, layers in Counter(all_caches(shape, engine)).items():
        what, formula = _formula(cache, kv)
        if isinstance(cache, StateLayer):
            size = state_bytes(cache, kv)
            lines.append(KvLine(layers, what, formula, size, is_per_request=True))
        else:
            lines.append(KvLine(layers, what, formula, token_bytes(cache, kv)))
    return tuple(lines)


def _formula(cache: Layer, kv: KvFormat) -> tuple[str, str]:
    tp = kv.tensor_parallel_size
    if isinstance(cache, AttentionLayer):
        what = "full attention"
        if cache.window_tokens:
            what = f"window of {cache.window_tokens:,} tokens"
        elif cache.chunk_tokens:
            what = f"chunks of {cache.chunk_tokens:,} tokens"
        held = max(1, cache.kv_heads // tp)
        heads = (
            f"{held} KV head{'s' * (held > 1)}" if held == cache.kv_heads else f"{held} of {cache.kv_heads} KV heads"
        )
        return what, f"{heads} × ({cache.key_head_dim} + {cache.value_head_dim}) × {kv.value_bytes} B"
    if isinstance(cache, LatentLayer):
        if kv.has_scaled_latent:
            scales = cache.kv_lora_rank // SCALE_GROUP
            return "MLA", f"{cache.kv_lora_rank} B + {scales} scales × 4 B + {cache.rope_head_dim} × 2 B"
        return "MLA", f"({cache.kv_lora_rank} + {cache.rope_head_dim}) × {kv.value_bytes} B"
    if isinstance(cache, IndexerLayer):
        scales = cache.index_head_dim // SCALE_GROUP
        return "indexer", f"{cache.index_head_dim} B + {scales} scale{'s' * (scales > 1)} × 4 B"
    return f"{cache.kind} state", " + ".join(f"{count:,} × {size} B" for count, size in state_values(cache, kv))


def _notes(shape: ModelShape, engine: Engine) -> tuple[str, ...]:
    notes = []
    if engine.kv_cache_dtype == "auto" and shape.kv_scheme_bits:
        notes.append(
            f"the checkpoint names {shape.kv_scheme_bits}-bit KV and the dtype is auto (16 bits counted); "
            "name fp8 if the engine follows the checkpoint"
        )
    if engine.kv_cache_dtype == "auto" and shape.has_indexer and _takes_scaled_latents(engine):
        notes.append(
            "vLLM 0.11.0 makes fp8_ds_mla of auto for DeepSeek-V3.2, later releases do not (16 bits counted); name "
            'fp8_ds_mla if the log says "Using custom fp8 kv-cache format"'
        )
    if engine.speculative_tokens and not (engine.drafter_layers or shape.own_drafter_layers):
        notes.append("speculative decoding without drafter layers: counted as a drafter that keeps no KV")
    return tuple(notes)


def _takes_scaled_latents(engine: Engine) -> bool:
    """Whether a release of this version makes fp8_ds_mla of the dtype auto (vllm-project/vllm#25988)."""
    return engine.name == VLLM and known_version(engine.name, engine.version) == (0, 11)
