"""From a Hugging Face config.json to what each layer keeps per token or per request: what the KV account adds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transforms.errors import CatalogError
from transforms.planner.model.config_reading import (
    HEADS,
    Config,
    above_zero,
    head_dim,
    kv_heads,
    layer_count,
    needed,
    read_config,
    text,
    value_of,
    whole,
    words,
)
from transforms.planner.model.layer_pattern import BOTH, CHUNK, FULL, NONE, STATE, WINDOW, layer_kinds
from transforms.planner.model.layer_state import StateLayer, state_layer
from transforms.planner.model.model_families import CACHES_PER_LAYER, OWN_DRAFTER_LAYERS, family_of


@dataclass(frozen=True)
class AttentionLayer:
    """K and V of `kv_heads` heads per token; the last `window_tokens` or the current chunk only, where set."""

    kv_heads: int
    key_head_dim: int
    value_head_dim: int
    window_tokens: int | None = None
    chunk_tokens: int | None = None


@dataclass(frozen=True)
class LatentLayer:
    """MLA: one latent vector and one rotary key per token, the same on every tensor-parallel rank."""

    kv_lora_rank: int
    rope_head_dim: int


@dataclass(frozen=True)
class IndexerLayer:
    """Sparse-attention indexer: one fp8 key per token with a float scale per 128 values, on every rank."""

    index_head_dim: int


Layer = AttentionLayer | LatentLayer | IndexerLayer | StateLayer


@dataclass(frozen=True)
class ModelShape:
    """What the KV account needs of a model; `layers[i]` is what transformer layer i keeps: none, one or two caches."""

    family: str
    architecture: str
    where: str
    layers: tuple[tuple[Layer, ...], ...]
    drafter_layer: tuple[Layer, ...]
    """What one layer of a drafter keeps: full attention in the model's own dims."""
    own_drafter_layers: int
    """Layers of the multi-token-prediction drafter that the config itself describes."""
    attention_heads: int | None
    """Query heads, which tensor parallelism must divide; they hold no KV."""
    max_position_embeddings: int | None
    kv_scheme_bits: int | None
    """Bits per KV value that the checkpoint's quantisation asks for, if it does."""

    @property
    def has_latent(self) -> bool:
        """Whether any layer is MLA."""
        return any(isinstance(cache, LatentLayer) for layer in self.layers for cache in layer)

    @property
    def has_indexer(self) -> bool:
        """Whether any layer has a sparse-attention indexer."""
        return any(isinstance(cache, IndexerLayer) for layer in self.layers for cache in layer)

    @property
    def has_state(self) -> bool:
        """Whether any layer keeps a state of fixed size."""
        return any(isinstance(cache, StateLayer) for layer in self.layers for cache in layer)


def model_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """Shape of the model in a decoded config.json; `where` names the file. CatalogError, ConfigError say what lacks."""
    read = read_config(config, where)
    if config.get("is_encoder_decoder") is True:
        raise CatalogError(
            f"{where}: '{read.model_type or read.architecture}' is an encoder-decoder, whose KV of the encoder's "
            "output no rule here counts; take the engine's own start-up log instead"
        )
    family = family_of(read.model_type, read.architecture, where)
    layers = layer_count(read)
    kinds = layer_kinds(read, family, layers)
    kept = layers - (whole(read, "num_kv_shared_layers") or 0)
    share = (whole(read, "cla_share_factor") or 1) if value_of(read, "use_cla") else 1
    times = CACHES_PER_LAYER.get(family, 1)
    return ModelShape(
        family=family,
        architecture=read.architecture,
        where=where,
        layers=tuple(
            _caches(read, kind, index) * times if index < kept and index % share == 0 else ()
            for index, kind in enumerate(kinds)
        ),
        drafter_layer=_attention(read, FULL) + _indexer(read, None),
        own_drafter_layers=_own_drafter_layers(read, family),
        attention_heads=above_zero(read, *HEADS),
        max_position_embeddings=whole(read, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
        or None,
        kv_scheme_bits=_kv_scheme_bits(read),
    )


def _caches(config: Config, kind: str, index: int) -> tuple[Layer, ...]:
    if kind == NONE:
        return ()
    if kind == STATE:
        return (state_layer(config),)
    if kind == BOTH:
        return (*_attention(config, FULL), state_layer(config))
    return _attention(config, kind) + (_indexer(config, index) if kind == FULL else ())


def _attention(config: Config, kind: str) -> tuple[Layer, ...]:
    if whole(config, "kv_lora_rank"):
        return (LatentLayer(needed(config, "kv_lora_rank"), needed(config, "qk_rope_head_dim")),)
    if kind == WINDOW:
        heads, key_dim = kv_heads(config, "swa_num_key_value_heads"), head_dim(config, "swa_head_dim")
        value_dim = whole(config, "swa_v_head_dim", "v_head_dim") or key_dim
        window = needed(config, "sliding_window", "sliding_window_size")
        return (AttentionLayer(heads, key_dim, value_dim, window_tokens=window),)
    if kind == CHUNK:
        heads, key_dim = kv_heads(config), head_dim(config)
        return (AttentionLayer(heads, key_dim, key_dim, chunk_tokens=needed(config, "attention_chunk_size")),)
    heads, key_dim = kv_heads(config, "num_global_key_value_heads"), head_dim(config, "global_head_dim")
    return (AttentionLayer(heads, key_dim, whole(config, "v_head_dim") or key_dim),)


def _indexer(config: Config, index: int | None) -> tuple[Layer, ...]:
    """Find the indexer of layer `index` (None: a drafter, which has its own) by vLLM's skip rule (deepseek_v2.py)."""
    dim = whole(config, "index_head_dim")
    if not dim or not whole(config, "index_topk"):
        return ()
    if index is not None and not _has_own_indexer(config, index):
        return ()
    return (IndexerLayer(dim),)


def _has_own_indexer(config: Config, index: int) -> bool:
    """Whether layer `index` picks its tokens itself; the others take over the choice of a layer before (GLM-5.2)."""
    types, pattern = words(config, "indexer_types"), text(config, "index_topk_pattern")
    if types is not None and index < len(types):
        return bool(types[index] != "shared")
    if pattern is not None and index < len(pattern):
        return pattern[index] != "S"
    offset = whole(config, "index_skip_topk_offset")
    first = 2 if offset is None else offset
    return max(index - first + 1, 0) % (whole(config, "index_topk_freq") or 1) == 0


def _own_drafter_layers(config: Config, family: str) -> int:
    counted = whole(config, "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    return OWN_DRAFTER_LAYERS.get(family, 0) if counted is None else counted


def _kv_scheme_bits(config: Config) -> int | None:
    """Read compressed-tensors' kv_cache_scheme and modelopt's kv_cache_quant_algo."""
    scheme = config.quantization.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, Mapping) else None
    if isinstance(bits, int):
        return bits
    return 8 if str(config.quantization.get("kv_cache_quant_algo")).upper() in ("FP8", "INT8") else None
