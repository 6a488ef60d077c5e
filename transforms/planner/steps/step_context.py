"""What a step reads and multiplies for the context of its sequences: full, windowed, latent, indexed, states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.fleet import Engine
from transforms.planner.memory.kv_layers import kv_format, state_bytes, token_bytes
from transforms.planner.memory.kv_versions import known_version
from transforms.planner.model.config_reading import read_config
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import IndexerLayer, LatentLayer, model_shape
from transforms.planner.steps.layer_flop import attention_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.planner.memory.kv_layers import KvFormat
    from transforms.planner.model.config_reading import Config
    from transforms.planner.model.model_shape import Layer


@dataclass(frozen=True)
class ContextWork:
    """Bytes over the tensor ranks of one data rank, FLOPs of the whole model."""

    token_bytes: float
    """Per context token of the layers that see all of it, on every rank that holds it."""
    sequence_bytes: float
    """Per decoding sequence: windows, the indexer's choice, states read and written."""
    pair_flop: float
    prefill_pair_flop: float
    window_flop: float
    """Per token: windows and the indexer's choice."""
    latent_layers: int
    indexer_layers: int
    state_layers: int

    @property
    def prefill_pair_ratio(self) -> float:
        """Attention work of a prefill pair against a decode pair."""
        return self.prefill_pair_flop / self.pair_flop if self.pair_flop else 1.0


def context_work(
    config: Mapping[str, Any], where: str, tensor: int, *, engine_name: str, kv_cache_dtype: str
) -> ContextWork:
    """Context work of the model in a decoded config.json over `tensor` ranks; the bytes are those of the KV account."""
    read, shape = read_config(config, where), model_shape(config, where)
    engine = Engine(name=engine_name, tensor_parallel_size=tensor, kv_cache_dtype=kv_cache_dtype)
    kv = kv_format(shape, engine, known_version(engine_name, None))
    layers = [cache for layer in shape.layers for cache in layer]
    rows = [_layer(cache, read, kv) for cache in layers]
    token, sequence, pair, prefill_pair, window = (sum(row[at] for row in rows) for at in range(5))
    return ContextWork(
        token,
        sequence,
        pair,
        prefill_pair,
        window,
        latent_layers=sum(isinstance(cache, LatentLayer) for cache in layers),
        indexer_layers=sum(isinstance(cache, IndexerLayer) for cache in layers),
        state_layers=sum(isinstance(cache, StateLayer) for cache in layers),
    )


def _layer(cache: Layer, config: Config, kv: KvFormat) -> tuple[float, float, float, float, float]:
    """Sum to ContextWork: token and sequence bytes, pair, prefill pair and window FLOPs of one layer.

    A window is read whole by every decoding sequence, which overstates those that are still shorter.
    """
    ranks = float(kv.tensor_parallel_size)
    if isinstance(cache, StateLayer):
        return 0.0, 2.0 * ranks * state_bytes(cache, kv), 0.0, 0.0, 0.0
    held, work = ranks * token_bytes(cache, kv), attention_work(cache, config, kv.tensor_parallel_size)
    if work.window_tokens is not None:
        return 0.0, held * work.window_tokens, 0.0, 0.0, work.pair_flop * work.window_tokens
    return held, 0.0, work.pair_flop, work.prefill_pair_flop, 0.0
