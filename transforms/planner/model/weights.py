"""Bytes of a model's weights: on each GPU under tensor and pipeline parallelism, and read for a token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transforms.planner.model.attention_parameters import latent_copy
from transforms.planner.model.config_reading import head_dim, number, read_config, value_of, whole
from transforms.planner.model.expert_layout import MARLIN, ExpertLayout
from transforms.planner.model.parameters import Parameters, parameters
from transforms.planner.model.quantization import PLAIN_BYTES, Quantization, quantization

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transforms.planner.model.config_reading import Config
    from transforms.planner.model.parts import Part

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
    routed_expert_bytes: int
    per_gpu_bytes: int
    """On the fullest GPU, with what every rank repeats, rotary tables and the engine's own copies."""


def weights(
    config: Mapping[str, Any],
    where: str,
    *,
    tensor: int = 1,
    pipeline: int = 1,
    data: int = 1,
    drafter_layers: int = 0,
    layout: ExpertLayout = MARLIN,
) -> Weights:
    """Weight bytes of the model in a decoded config.json over `tensor` × `pipeline` GPUs, drafter layers included.

    Routed experts spread over `tensor` × `data` ranks, with expert parallelism or without (vLLM fused_moe config.py),
    in the `layout` that the engine's kernels ask for.
    """
    read = read_config(config, where)
    counted = parameters(config, where)
    storage = Storage(quantization(read.quantization, where), layout)
    alone = storage.split(1, 1)
    layers = [[alone.bytes_of(part, _names(index)) for part in layer] for index, layer in enumerate(counted.layers)]
    routed = [
        size
        for parts, sizes in zip(counted.layers, layers, strict=True)
        for part, size in zip(parts, sizes, strict=True)
        if part.name == "routed_experts"
    ]
    stored = () if counted.is_tied else (counted.lm_head,)
    outside = sum(alone.bytes_of(part) for part in (counted.embedding, *stored, *counted.outside))
    return Weights(
        parameters=counted,
        quantization=storage.scheme.name,
        total_bytes=round(sum(map(sum, layers)) + outside),
        routed_expert_bytes=round(sum(routed)),
        per_gpu_bytes=_fullest_stage_bytes(
            read, counted, storage.split(tensor, tensor * data), pipeline=pipeline, drafter_layers=drafter_layers
        ),
    )


def stage_layers(layers: int, stages: int) -> list[int]:
    """Layers of each pipeline stage, in order; a remainder goes to stages before the last (vLLM get_pp_indices)."""
    sizes = [layers // stages] * stages
    for extra in range(layers % stages):
        sizes[-(extra + 2)] += 1
    return sizes


@dataclass(frozen=True)
class Storage:
    """How parts lie on one of `tensor` ranks; routed experts spread over `experts` ranks."""

    scheme: Quantization
    layout: ExpertLayout
    tensor: int = 1
    experts: int = 1

    def split(self, tensor: int, experts: int) -> Storage:
        """The same over `tensor` ranks, routed experts over `experts` ranks."""
        return replace(self, tensor=tensor, experts=experts)

    def bytes_of(self, part: Part, layers: tuple[str, ...] = ("model",)) -> float:
        """Bytes of `part` on one rank, in a layer that the checkpoint knows by the names `layers`."""
        is_quantised = part.is_linear and self.scheme.covers(part.name, part.modules, layers)
        ranks = self.experts if part.experts is not None else self.tensor
        if is_quantised and part.experts is not None:
            return self.layout.rank_bytes(part.experts, self.scheme, ranks)
        size = self.scheme.bytes_per_parameter if is_quantised else PLAIN_BYTES
        return part.parameters * size / min(ranks, part.split)

    def rank_bytes(self, parts: Iterable[Part], layers: tuple[str, ...] = ("model",)) -> float:
        """Bytes of all `parts` of one layer on one rank."""
        return sum(self.bytes_of(part, layers) for part in parts)


def _fullest_stage_bytes(
    config: Config, counted: Parameters, storage: Storage, *, pipeline: int, drafter_layers: int
) -> int:
    tables = _rotary_bytes(config, counted.family)
    copies = latent_copy(config) * PLAIN_BYTES / storage.tensor
    layer_bytes = [storage.rank_bytes(layer, _names(index)) + copies for index, layer in enumerate(counted.layers)]
    head = () if counted.is_tied and pipeline == 1 else (counted.lm_head,)
    ends = {0: storage.rank_bytes((counted.embedding, *counted.outside[1:]))}
    ends[pipeline - 1] = ends.get(pipeline - 1, 0.0) + storage.rank_bytes((*head, *counted.outside[:1]))
    drafter = storage.rank_bytes(counted.drafter_layer, ("mtp.layers.0", *_names(len(counted.layers))))
    ends[pipeline - 1] += drafter_layers * drafter
    start, stages = 0, []
    for stage, size in enumerate(stage_layers(len(layer_bytes), pipeline)):
        stages.append(sum(layer_bytes[start : start + size]) + ends.get(stage, 0.0) + tables)
        start += size
    return round(max(stages))


def _names(index: int) -> tuple[str, ...]:
    """Names that checkpoints give layer `index`."""
    return (f"model.layers.{index}",)


def _rotary_bytes(config: Config, family: str) -> int:
    """Bytes of the table of cosines and sines that every rank holds for all positions the config allows."""
    positions = whole(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 0
    dim = head_dim(config, "qk_rope_head_dim", "rotary_dim")
    share = number(config, "partial_rotary_factor") or number(config, "rope_parameters.partial_rotary_factor")
    share = share or _ROTARY_SHARE.get(family, 1.0)
    tables = 2 if value_of(config, "rope_local_base_freq") else 1  # Gemma 3 turns windowed layers by another base
    if family in _MANY_POSITIONS:
        tables *= _VIDEO_POSITIONS
    return tables * round(positions * dim * share) * _ROTARY_VALUE_BYTES
