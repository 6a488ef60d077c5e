"""Bytes of a model's weights: on each GPU under tensor and pipeline parallelism, and read for a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.planner.attention_parameters import latent_copy
from transforms.planner.config_reading import HEAD_DIM, HEADS, HIDDEN, needed, read_config, value_of, whole
from transforms.planner.parameters import Parameters, parameters
from transforms.planner.quantization import PLAIN_BYTES, Quantization, quantization

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transforms.planner.config_reading import Config
    from transforms.planner.parts import Part

_ROTARY_VALUE_BYTES = 2  # cosine and sine tables are kept in the model's 16 bits (vLLM rotary_embedding)
# Public configs that leave the rotated share of a head to the class default (transformers).
_ROTARY_SHARE = dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), 0.25)
# Positions of videos run further than those of text: the table is four times as long (vLLM mrope.py).
_VIDEO_POSITIONS = 4
_MANY_POSITIONS = frozenset(
    f"{base}{end}"
    for base in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
    for end in ("", "_text")
)


@dataclass(frozen=True)
class Weights:
    """Weights of one model under one quantisation; bytes of the whole model unless the name says otherwise."""

    parameters: Parameters
    quantization: str
    total_bytes: int
    embedding_bytes: int
    """The input embedding, which a step does not read as a matrix."""
    routed_expert_bytes: int
    per_gpu_bytes: int
    """On the fullest GPU, with what every rank repeats, rotary tables and the engine's own copies."""

    @property
    def shared_bytes(self) -> int:
        """What every step reads: all but the input embedding and the routed experts."""
        return self.total_bytes - self.embedding_bytes * (not self.parameters.is_tied) - self.routed_expert_bytes


def weights(
    config: Mapping[str, Any], where: str, *, tensor: int = 1, pipeline: int = 1, data: int = 1, drafter_layers: int = 0
) -> Weights:
    """Weight bytes of the model in a decoded config.json over `tensor` × `pipeline` GPUs, drafter layers included.

    Routed experts spread over `tensor` × `data` ranks, with expert parallelism or without (vLLM fused_moe config.py).
    """
    read = read_config(config, where)
    counted, scheme = parameters(config, where), quantization(read.quantization, where)
    stored = () if counted.is_tied else (counted.lm_head,)
    everything = [part for layer in counted.layers for part in layer]
    everything += [counted.embedding, *stored, *counted.outside]
    return Weights(
        parameters=counted,
        quantization=scheme.name,
        total_bytes=round(sum(_bytes(part, scheme) for part in everything)),
        embedding_bytes=round(_bytes(counted.embedding, scheme)),
        routed_expert_bytes=round(sum(_bytes(p, scheme) for p in everything if p.name == "routed_experts")),
        per_gpu_bytes=_fullest_stage_bytes(
            read, counted, scheme, ranks=(tensor, tensor * data), pipeline=pipeline, drafter_layers=drafter_layers
        ),
    )


def stage_layers(layers: int, stages: int) -> list[int]:
    """Layers of each pipeline stage, in order; a remainder goes to stages before the last (vLLM get_pp_indices)."""
    sizes = [layers // stages] * stages
    for extra in range(layers % stages):
        sizes[-(extra + 2)] += 1
    return sizes


def _fullest_stage_bytes(
    config: Config,
    counted: Parameters,
    scheme: Quantization,
    *,
    ranks: tuple[int, int],
    pipeline: int,
    drafter_layers: int,
) -> int:
    tables = _rotary_bytes(config, counted.family)
    copies = latent_copy(config) * PLAIN_BYTES / ranks[0]
    layer_bytes = [_rank_bytes(layer, scheme, ranks) + copies for layer in counted.layers]
    head = () if counted.is_tied and pipeline == 1 else (counted.lm_head,)
    ends = {0: _rank_bytes((counted.embedding, *counted.outside[1:]), scheme, ranks)}
    ends[pipeline - 1] = ends.get(pipeline - 1, 0.0) + _rank_bytes((*head, *counted.outside[:1]), scheme, ranks)
    ends[pipeline - 1] += drafter_layers * _rank_bytes(counted.drafter_layer, scheme, ranks)
    start, stages = 0, []
    for stage, size in enumerate(stage_layers(len(layer_bytes), pipeline)):
        stages.append(sum(layer_bytes[start : start + size]) + ends.get(stage, 0.0) + tables)
        start += size
    return round(max(stages))


def _rank_bytes(parts: Iterable[Part], scheme: Quantization, ranks: tuple[int, int]) -> float:
    """Bytes of `parts` on one rank; `ranks` are those that dense parts and routed experts spread over."""
    tensor, experts = ranks
    return sum(_bytes(p, scheme) / min(experts if p.name == "routed_experts" else tensor, p.split) for p in parts)


def _bytes(part: Part, scheme: Quantization) -> float:
    if not part.is_linear or not scheme.covers(part.name, part.modules):
        return part.parameters * PLAIN_BYTES
    count = part.padded if scheme.is_padded and part.padded is not None else part.parameters
    return count * scheme.bytes_per_parameter


def _rotary_bytes(config: Config, family: str) -> int:
    """Bytes of the table of cosines and sines that every rank holds for all positions the config allows."""
    positions = whole(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 0
    dim = whole(config, "qk_rope_head_dim", "rotary_dim", *HEAD_DIM)
    dim = dim or needed(config, *HIDDEN) // needed(config, *HEADS)
    share = value_of(config, "partial_rotary_factor") or value_of(config, "rope_parameters.partial_rotary_factor")
    share = share or _ROTARY_SHARE.get(family, 1.0)
    tables = 2 if value_of(config, "rope_local_base_freq") else 1  # Gemma 3 turns windowed layers by another base
    if family in _MANY_POSITIONS:
        tables *= _VIDEO_POSITIONS
    return tables * round(positions * dim * share) * _ROTARY_VALUE_BYTES
