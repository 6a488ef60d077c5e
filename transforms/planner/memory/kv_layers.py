"""Bytes that one layer keeps on one GPU: per token for attention, per request for a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.errors import CatalogError, ConfigError, nearest
from transforms.planner.memory.kv_versions import SGLANG, TENSORRT_LLM, vllm_rules
from transforms.planner.model.layer_state import CONV_VALUE_BYTES, StateLayer
from transforms.planner.model.model_shape import AttentionLayer, IndexerLayer, LatentLayer

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_versions import Version
    from transforms.planner.model.model_shape import Layer, ModelShape

KV_VALUE_BYTES = {
    "auto": 2,  # the model's own dtype; engines run float32 checkpoints in 16 bits
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_ds_mla": 1,
    "int8": 1,
}
SPARSE_LATENT = "fp8_ds_mla"

SCALE_GROUP = 128  # values that share one float32 scale, in fp8_ds_mla and in indexer keys (DeepSeek-V3.2)
_SCALE_BYTES = 4
_STATE_BYTES = 2  # states follow the model's 16 bits where neither config nor engine says otherwise
_SGLANG_STATE_BYTES = 4  # mamba_utils.py: float32 unless the config says otherwise
_ROPE_VALUE_BYTES = 2  # fp8_ds_mla keeps the rotary key in 16 bits


@dataclass(frozen=True)
class KvFormat:
    """How KV lies on a GPU: bytes per value, tensor-parallel ranks, drafts, and whether latents carry scales."""

    dtype: str
    value_bytes: int
    tensor_parallel_size: int
    has_scaled_latent: bool
    draft_tokens: int
    state_value_bytes: int
    """Of a state whose config does not say."""
    is_data_centre_blackwell: bool = False
    """Whether the GPU's kernels are those of compute capability 10.x, which want larger blocks."""


def kv_format(
    shape: ModelShape, engine: Engine, version: Version, *, is_data_centre_blackwell: bool = False
) -> KvFormat:
    """KV format of `shape` under `engine`; CatalogError on an unknown dtype, ConfigError on one for other models."""
    dtype = engine.kv_cache_dtype
    if dtype not in KV_VALUE_BYTES:
        known = ", ".join(KV_VALUE_BYTES)
        raise CatalogError(f"unknown KV cache dtype '{dtype}'{nearest(dtype, KV_VALUE_BYTES)}; known are {known}")
    if dtype == SPARSE_LATENT and not shape.has_latent:
        raise ConfigError(f"{shape.where}: KV cache dtype {SPARSE_LATENT} is for MLA models only; use fp8")
    is_fp8 = dtype.startswith("fp8")
    return KvFormat(
        dtype=dtype,
        value_bytes=KV_VALUE_BYTES[dtype],
        tensor_parallel_size=engine.tensor_parallel_size,
        has_scaled_latent=is_fp8 and (shape.has_indexer or dtype == SPARSE_LATENT),
        draft_tokens=0 if engine.name == SGLANG else engine.speculative_tokens,  # SGLang copies whole states instead
        is_data_centre_blackwell=is_data_centre_blackwell,
        state_value_bytes=_state_value_bytes(shape, engine, version),
    )


def check_parallelism(shape: ModelShape, engine: Engine) -> None:
    """ConfigError where tensor, pipeline or decode-context parallelism does not divide the model."""
    tp, pp, dcp = engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.decode_context_parallel_size
    caches = {cache for layer in shape.layers for cache in layer}
    kv_heads = sorted({cache.kv_heads for cache in caches if isinstance(cache, AttentionLayer)})
    divided = [("attention heads", shape.attention_heads or tp)]
    divided += [("state channels", c.conv_channels) for c in caches if isinstance(c, StateLayer)]
    for name, count in divided:
        if count % tp:
            raise ConfigError(
                f"{shape.where}: {count} {name} do not divide over TP {tp}; use a TP that divides {count}"
            )
    for heads in kv_heads:
        if heads % tp and tp % heads:
            raise ConfigError(
                f"{shape.where}: {heads} KV heads neither divide over TP {tp} nor repeat on it; "
                f"use a TP that divides {heads} or a multiple of it"
            )
    if pp > len(shape.layers):
        raise ConfigError(
            f"{shape.where}: {len(shape.layers)} layers do not fill {pp} pipeline stages; use a smaller PP"
        )
    copies = min((max(1, tp // heads) for heads in kv_heads), default=tp)
    if copies % dcp:
        raise ConfigError(
            f"{shape.where}: DCP {dcp} must divide the {copies} copies that TP {tp} keeps of each KV head"
        )


def _state_value_bytes(shape: ModelShape, engine: Engine, version: Version) -> int:
    if engine.name == SGLANG:
        return _SGLANG_STATE_BYTES
    if engine.name != TENSORRT_LLM and shape.family.startswith("nemotron"):
        return vllm_rules(version).nemotron_state_bytes
    return _STATE_BYTES


def token_bytes(cache: Layer, kv: KvFormat) -> int:
    """Bytes per token that attention `cache` keeps on one GPU; 0 for a state."""
    if isinstance(cache, AttentionLayer):
        heads = max(1, cache.kv_heads // kv.tensor_parallel_size)
        return heads * (cache.key_head_dim + cache.value_head_dim) * kv.value_bytes
    if isinstance(cache, LatentLayer):
        if kv.has_scaled_latent:
            scales = cache.kv_lora_rank // SCALE_GROUP * _SCALE_BYTES
            return cache.kv_lora_rank + scales + cache.rope_head_dim * _ROPE_VALUE_BYTES
        return (cache.kv_lora_rank + cache.rope_head_dim) * kv.value_bytes
    if isinstance(cache, IndexerLayer):
        return cache.index_head_dim + cache.index_head_dim // SCALE_GROUP * _SCALE_BYTES
    return 0


def state_bytes(state: StateLayer, kv: KvFormat) -> int:
    """Bytes of one request's `state` in one layer on one GPU."""
    return sum(count * size for count, size in state_values(state, kv))


def state_values(state: StateLayer, kv: KvFormat) -> tuple[tuple[int, int], ...]:
    """Values and bytes each of a state's convolution window and of the rest, on one GPU; without what it has none of.

    Every draft token widens the convolution by one value a channel.
    """
    tp, groups = kv.tensor_parallel_size, state.conv_groups
    if groups and groups % tp:
        groups = tp  # every rank needs a group of its own
    channels = (state.conv_channels + groups * state.conv_group_channels) // tp
    conv = channels * (state.conv_taps + kv.draft_tokens) if state.conv_taps else 0
    values = ((conv, CONV_VALUE_BYTES), (state.state_elements // tp, state.state_value_bytes or kv.state_value_bytes))
    return tuple((count, size) for count, size in values if count)


def drafter_layers(shape: ModelShape, engine: Engine) -> int:
    """Layers of the drafter: as many as the engine names, else the config's own if tokens are drafted at all."""
    return engine.drafter_layers or (shape.own_drafter_layers if engine.speculative_tokens else 0)


def layers_with_drafter(shape: ModelShape, engine: Engine) -> tuple[tuple[Layer, ...], ...]:
    """Caches of every layer and then of the drafter's."""
    return shape.layers + (shape.drafter_layer,) * drafter_layers(shape, engine)


def pipeline_stages(layers: tuple[tuple[Layer, ...], ...], model_layers: int, stages: int) -> list[tuple[Layer, ...]]:
    """Caches on each pipeline stage: even shares, the rest to the stages before the last, drafters on the last."""
    shares = [model_layers // stages] * stages
    for n in range(model_layers % stages):
        shares[-2 - n] += 1
    shares[-1] += len(layers) - model_layers
    split, start = [], 0
    for share in shares:
        split.append(tuple(cache for layer in layers[start : start + share] for cache in layer))
        start += share
    return split


def fullest_stage(shape: ModelShape, engine: Engine, kv: KvFormat) -> tuple[Layer, ...]:
    """Caches of the pipeline stage that keeps most bytes per token, drafters included."""
    layers = layers_with_drafter(shape, engine)
    stages = pipeline_stages(layers, len(shape.layers), engine.pipeline_parallel_size)
    return max(stages, key=lambda stage: sum(token_bytes(cache, kv) for cache in stage))


def all_caches(shape: ModelShape, engine: Engine) -> tuple[Layer, ...]:
    """Caches of all layers, drafters included."""
    return tuple(cache for layer in layers_with_drafter(shape, engine) for cache in layer)
