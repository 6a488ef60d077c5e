"""A replica's step-time model from the model's shape, the GPU's data sheet and efficiencies that are assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError
from transforms.planner.config_reading import HEADS, HIDDEN, LAYERS, needed, read_config
from transforms.planner.model_shape import AttentionLayer, LatentLayer, model_shape
from transforms.planner.quantization import PLAIN_BYTES
from transforms.planner.step_time import StepModel
from transforms.planner.weights import weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine

COLLECTIVES_PER_LAYER = 2
"""All-reduces of a layer under tensor parallelism: after attention and after the feed-forward part."""


@dataclass(frozen=True)
class Efficiencies:
    """How far kernels stay below the data sheet, and what a step costs beside them; replaced by a calibration.

    The best of a coarse grid on the dense vLLM rows of the public benchmark sample of aiconfigurator 0.12.0
    (Qwen3-32B bf16 and Llama-3.1-70B fp8 on H100, TP 2 to 8): time per output token within 7 % (median), 22 % (p90).
    """

    compute_ratio: float = 0.7
    bandwidth_ratio: float = 0.75
    link_ratio: float = 0.4
    step_overhead_s: float = 2.0e-3
    sequence_overhead_s: float = 2.0e-5
    collective_latency_s: float = 5.0e-6
    provenance: str = "assumed"
    source: str = "coarse fit to public vLLM runs of dense models on H100 (benchmark sample of aiconfigurator 0.12.0)"


ASSUMED = Efficiencies()


def step_model(
    config: Mapping[str, Any],
    where: str,
    gpu: Gpu,
    engine: Engine,
    *,
    kv_token_bytes: int,
    efficiencies: Efficiencies = ASSUMED,
) -> StepModel:
    """Step-time model of one replica of the model in a decoded config.json under tensor parallelism.

    CatalogError for pipeline or data parallelism, and where the GPU's entry lacks a peak or a link it needs.
    """
    _refuse_unknown_parallelism(engine, where)
    gpus = engine.tensor_parallel_size
    counted = weights(config, where, tensor=gpus)
    peak = _peak(counted.quantization, gpu)
    read = read_config(config, where)
    token_s, latency_s = _collectives(needed(read, *LAYERS), needed(read, *HIDDEN), gpus, gpu, efficiencies)
    return StepModel(
        token_flop=2.0 * counted.parameters.computed,
        sampled_flop=2.0 * counted.parameters.lm_head.parameters,
        pair_flop=_pair_flop(config, where, needed(read, *HEADS)),
        weight_bytes=counted.shared_bytes + counted.routed_expert_bytes,
        kv_token_bytes=kv_token_bytes,
        flop_per_s=gpus * peak * efficiencies.compute_ratio,
        bytes_per_s=gpus * gpu.bandwidth_bytes_per_s * efficiencies.bandwidth_ratio,
        peak_flop_per_s=gpus * peak,
        peak_bytes_per_s=gpus * gpu.bandwidth_bytes_per_s,
        token_collective_s=token_s,
        step_overhead_s=efficiencies.step_overhead_s + latency_s,
        sequence_overhead_s=efficiencies.sequence_overhead_s,
        speculative_tokens=engine.speculative_tokens,
        provenance=efficiencies.provenance,
    )


def compute_dtype(quantization: str) -> str:
    """Dtype the matrix products run in: that of the weights where both sides are quantised, else bf16."""
    return next((dtype for dtype in ("fp8", "fp4") if dtype in quantization), "bf16")


def _peak(quantization: str, gpu: Gpu) -> float:
    """Dense FLOP/s of one GPU; weights in a dtype the GPU cannot multiply are widened to 16 bits first."""
    wanted = compute_dtype(quantization)
    found = next((d for d in (wanted, "bf16", "fp16") if d in gpu.peak_flop_per_s), wanted)
    return gpu.peak(found)


def _pair_flop(config: Mapping[str, Any], where: str, heads: int) -> float:
    """FLOPs of attention per (new token × context token): a product and a sum over keys and values of every head."""
    flop = 0.0
    for layer in model_shape(config, where).layers:
        for cache in layer:
            if isinstance(cache, AttentionLayer):
                flop += 2.0 * heads * (cache.key_head_dim + cache.value_head_dim)
            elif isinstance(cache, LatentLayer):
                flop += 2.0 * heads * (2 * cache.kv_lora_rank + cache.rope_head_dim)
    return flop


def _collectives(layers: int, hidden: int, gpus: int, gpu: Gpu, efficiencies: Efficiencies) -> tuple[float, float]:
    """Seconds of a ring's all-reduces per token, and their latency per step; zero on one GPU."""
    if gpus == 1:
        return 0.0, 0.0
    if gpu.link_bytes_per_s is None:
        raise CatalogError(f"GPU {gpu.name} has no [link] in the catalog; tensor_parallel_size {gpus} needs it")
    moved_bytes = COLLECTIVES_PER_LAYER * layers * hidden * PLAIN_BYTES * 2 * (gpus - 1) / gpus
    token_s = moved_bytes / (gpu.link_bytes_per_s * efficiencies.link_ratio)
    return token_s, COLLECTIVES_PER_LAYER * layers * efficiencies.collective_latency_s


def _refuse_unknown_parallelism(engine: Engine, where: str) -> None:
    for key in ("pipeline_parallel_size", "data_parallel_size"):
        size = getattr(engine, key)
        if size != 1:
            raise CatalogError(
                f"{where}: step times are described for tensor parallelism only, not for {key} = {size}; "
                "set it to 1 (kvledger kv still counts its memory)"
            )
