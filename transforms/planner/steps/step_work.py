"""What one step of a replica has to do, as seconds at the data sheet's limits: the part no efficiency enters.

Every field is a time or a count per unit (token, sequence, step, context token), so that a step's time under any
calibration is a sum of products (step_calibration.py), for one replica or, with arrays as fields, for many at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError
from transforms.planner.model.config_reading import HIDDEN, LAYERS, needed, read_config, whole
from transforms.planner.model.expert_layout import expert_layout
from transforms.planner.model.feed_forward_parameters import inner_sizes
from transforms.planner.model.parameters import parameters
from transforms.planner.model.quantization import PLAIN_BYTES, quantization
from transforms.planner.model.weights import Storage
from transforms.planner.steps.layer_kernels import launched_kernels, sparse_layers
from transforms.planner.steps.step_context import context_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transforms.catalog import Gpu
    from transforms.planner.model.config_reading import Config
    from transforms.planner.model.parameters import Parameters
    from transforms.planner.model.parts import Part

COLLECTIVES_PER_LAYER = 2
"""All-reduces of a layer under tensor parallelism: after attention and after the feed-forward part."""


@dataclass(frozen=True)
class Layout:
    """How a model is spread: tensor ranks × pipeline stages × data ranks (attention DP), experts over `expert`."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of a replica."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class StepWork:
    """Work of a step of one replica. `_s`: seconds with all GPUs at full peak or bandwidth; collectives apart."""

    token_flop: float
    """2 × (active parameters − embedding − lm_head)."""
    sampled_flop: float
    pair_flop: float
    """Decode: attention work per (new token × context token)."""
    prefill_pair_ratio: float
    """The same in prefill, as a share: MLA multiplies whole heads there, latents in decode."""
    gemm_bf16_s: float
    """Per token: matrix products in 16 bits outside the experts; the next ones in 8 and 4 bits."""
    gemm_fp8_s: float
    gemm_fp4_s: float
    expert_bf16_s: float
    """Per token: routed experts, by the dtype they multiply in."""
    expert_fp8_s: float
    expert_fp4_s: float
    sampled_s: float
    pair_s: float
    window_s: float
    """Per token: attention inside windows and to the indexer's choice, whatever the context."""
    weight_bytes: float
    """Read by every step: all but the input embedding and routed experts, as often as ranks hold them."""
    expert_bytes: float
    """All routed experts; a step reads the share its tokens ask for."""
    experts: float
    """Of one layer; 1 where there are none, so that no token asks for any."""
    experts_per_token: float
    kv_token_bytes: float
    """Read per context token, on all ranks that hold it."""
    sequence_bytes: float
    """Read per decoding sequence: windows and states."""
    bandwidth_bytes_per_s: float
    """Bandwidth of the GPUs that read at the same time: a pipeline's stages take turns."""
    activation_s: float
    """Per token: reading once what the matrix products take and give inside a layer, experts apart."""
    dispatch_s: float
    """Per token: the copies that go to its experts."""
    link_s: float
    """Per token: collectives at the link's bandwidth."""
    collectives: float
    """Collectives of a step, each weighted by the ranks it must reach."""
    kernels: float
    sparse_layers: float
    """Layers with routed experts."""
    sequence_share: float
    """Of the sequences, those one rank prepares."""
    peak_flop_per_s: float
    peak_bytes_per_s: float
    compute_dtype: str = "bf16"


def step_work(
    config: Mapping[str, Any],
    where: str,
    gpu: Gpu,
    layout: Layout,
    *,
    engine_name: str = "vllm",
    kv_cache_dtype: str = "auto",
    dtype: str | None = None,
    counted: Parameters | None = None,
) -> StepWork:
    """Work of one step of the model in a decoded config.json on `gpu`s; `dtype` is what its weights compute in.

    `counted` spares counting the parameters again. CatalogError where the GPU's entry lacks a peak or a link it needs.
    """
    read, counted = read_config(config, where), counted or parameters(config, where)
    storage = Storage(quantization(read.quantization, where), expert_layout(engine_name, gpu))
    wanted = widened(dtype or compute_dtype(storage.scheme.name), gpu)
    products = _products(counted, storage, layout)
    context = context_work(config, where, layout.tensor, engine_name=engine_name, kv_cache_dtype=kv_cache_dtype)
    peak, narrow = layout.gpus * gpu.peak(widened("bf16", gpu)), layout.gpus * gpu.peak(wanted)
    reading = layout.tensor * layout.data * gpu.bandwidth_bytes_per_s
    share = whole_experts(read, counted.family, layout.pipeline)
    quantised = {name: products.quantised / narrow if name == wanted else 0.0 for name in ("fp8", "fp4")}
    routed = {name: products.routed / narrow if name == wanted else 0.0 for name in ("fp8", "fp4")}
    is_plain = wanted not in quantised
    return StepWork(
        token_flop=2.0 * counted.computed,
        sampled_flop=2.0 * counted.lm_head.parameters,
        pair_flop=context.pair_flop,
        prefill_pair_ratio=context.prefill_pair_ratio,
        gemm_bf16_s=products.plain / peak + (products.quantised / narrow if is_plain else 0.0),
        gemm_fp8_s=quantised["fp8"],
        gemm_fp4_s=quantised["fp4"],
        expert_bf16_s=products.routed / narrow if is_plain else 0.0,
        expert_fp8_s=routed["fp8"],
        expert_fp4_s=routed["fp4"],
        sampled_s=2.0 * counted.lm_head.parameters / peak,
        pair_s=context.pair_flop / peak,
        window_s=context.window_flop / peak,
        weight_bytes=_read_bytes(counted, storage, layout),
        expert_bytes=_expert_bytes(counted, storage),
        experts=share[0],
        experts_per_token=share[1],
        kv_token_bytes=context.token_bytes,
        sequence_bytes=context.sequence_bytes,
        bandwidth_bytes_per_s=reading,
        **_traffic(read, counted, gpu, layout, share[1]),
        kernels=float(launched_kernels(read, counted, context)),
        sparse_layers=float(sparse_layers(counted)),
        sequence_share=1 / (layout.data * layout.pipeline),
        peak_flop_per_s=narrow,
        peak_bytes_per_s=layout.gpus * gpu.bandwidth_bytes_per_s,
        compute_dtype=wanted,
    )


def compute_dtype(quantization_name: str) -> str:
    """Dtype the matrix products run in: that of the weights where both sides are quantised, else bf16."""
    return next((dtype for dtype in ("fp8", "fp4") if dtype in quantization_name), "bf16")


def widened(dtype: str, gpu: Gpu) -> str:
    """Dtype that `gpu` multiplies weights of `dtype` in: 16 bits where it has no peak for them."""
    return next((d for d in (dtype, "bf16", "fp16") if d in gpu.peak_flop_per_s), dtype)


def whole_experts(config: Config, family: str, stages: int) -> tuple[float, float]:
    """Experts of a layer and those a token takes; (1, 0) for a dense model.

    A pipeline's stage sees a batch's share of the tokens at a time, so a token of the whole batch takes fewer.
    """
    taken = inner_sizes(config, family)[2]
    count = whole(config, "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts") or 0
    if not taken or not count:
        return 1.0, 0.0
    return float(count), count * (1 - (1 - min(taken, count - 1) / count) ** (1 / stages))


@dataclass(frozen=True)
class _Products:
    """FLOPs per token over all ranks: in 16 bits, in the dtype of quantised weights, and of routed experts."""

    plain: float
    quantised: float
    routed: float


def _products(counted: Parameters, storage: Storage, layout: Layout) -> _Products:
    plain = quantised = routed = 0.0
    for index, part in _parts(counted):
        flop = 2.0 * part.active
        if part.experts is not None or part.name == "routed_experts":
            routed += flop
        elif part.is_linear:
            flop *= layout.tensor / min(layout.tensor, part.split)
            if storage.scheme.covers(part.name, part.modules, (f"model.layers.{index}",)):
                quantised += flop
            else:
                plain += flop
    return _Products(plain, quantised, routed)


def _read_bytes(counted: Parameters, storage: Storage, layout: Layout) -> float:
    """Bytes that all ranks of a stage together read in every step, summed over the stages."""
    alone = storage.split(1, 1)
    total = alone.bytes_of(counted.lm_head)
    for index, part in _parts(counted):
        if part.name != "routed_experts":
            repeated = layout.tensor / min(layout.tensor, part.split)
            total += alone.bytes_of(part, (f"model.layers.{index}",)) * repeated
    return total * layout.data


def _expert_bytes(counted: Parameters, storage: Storage) -> float:
    alone = storage.split(1, 1)
    return sum(
        alone.bytes_of(part, (f"model.layers.{index}",))
        for index, part in _parts(counted)
        if part.name == "routed_experts"
    )


def _parts(counted: Parameters) -> Iterable[tuple[int, Part]]:
    return ((index, part) for index, layer in enumerate(counted.layers) for part in layer)


def _traffic(config: Config, counted: Parameters, gpu: Gpu, layout: Layout, taken: float) -> dict[str, float]:
    """Hidden states moved per token through memory and links, and the collectives of a step."""
    layers, state_bytes = needed(config, *LAYERS), needed(config, *HIDDEN) * PLAIN_BYTES
    sparse = sparse_layers(counted)
    share = 1 / (layout.data * layout.pipeline)
    moved_bytes = collectives = 0.0
    if layout.tensor > 1:
        ring = 2 * (layout.tensor - 1) / layout.tensor
        moved_bytes += COLLECTIVES_PER_LAYER * layers * state_bytes * ring
        collectives += COLLECTIVES_PER_LAYER * layers * (1 + math.log2(layout.tensor)) / 2
    if layout.data > 1 and sparse:
        moved_bytes += 2 * sparse * state_bytes * (layout.data - 1)
        collectives += 2 * sparse
    if layout.pipeline > 1:
        moved_bytes += (layout.pipeline - 1) * state_bytes
        collectives += layout.pipeline - 1
    if moved_bytes and gpu.link_bytes_per_s is None:
        sizes = {"tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data}
        asks = ", ".join(f"{name}_parallel_size {size}" for name, size in sizes.items() if size > 1)
        raise CatalogError(f"GPU {gpu.name} has no [link] in the catalog; {asks} needs it")
    return {
        "activation_s": _inner_widths(config, counted, layout) * PLAIN_BYTES * share / gpu.bandwidth_bytes_per_s,
        "dispatch_s": sparse * taken / layout.expert * state_bytes * share / gpu.bandwidth_bytes_per_s,
        "link_s": moved_bytes * share / gpu.link_bytes_per_s if gpu.link_bytes_per_s else 0.0,
        "collectives": collectives,
    }


def _inner_widths(config: Config, counted: Parameters, layout: Layout) -> float:
    """Values per token between the matrix products of all layers on one tensor rank: heads, gates, latents.

    A matrix of so many parameters has the hidden size on one side and this width on the other.
    """
    parameters = sum(
        part.active / min(layout.tensor, part.split)
        for _, part in _parts(counted)
        if part.is_linear and part.name != "routed_experts"
    )
    return parameters / needed(config, *HIDDEN)
