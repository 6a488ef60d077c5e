"""The memory budget of one GPU: what the driver reports, what the engine may take, what is left for KV, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transforms.errors import CapacityError
from transforms.planner.memory.sglang_share import default_chunk_tokens
from transforms.planner.memory.start_up import (
    GIB,
    NEWEST,
    activation_bytes,
    check_engine,
    non_torch_bytes,
    release,
    vllm_start_up,
)
from transforms.planner.model.config_reading import HEADS, kv_heads, read_config, whole
from transforms.planner.model.expert_layout import expert_layout
from transforms.planner.model.model_shape import model_shape
from transforms.planner.model.parameters import VOCABULARY_STEP
from transforms.planner.model.weights import weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine

MEASURED, MODELLED, ASSUMED = "measured", "modelled", "assumed"
LARGEST_TENSOR_PARALLEL_SIZE = 64

# SGLang and TensorRT-LLM take their share of what is free once the CUDA context exists: 78.57 of 79.18 GiB (H100 logs).
CONTEXT_BYTES = round(0.61 * GIB)
# TensorRT-LLM: 17.83 of 31.84 GiB free after 8.49 GiB of weights (Llama-3.1-8B fp8 on RTX 5090, Triton start-up log).
TENSORRT_RUNTIME_BYTES = round(5.52 * GIB) - CONTEXT_BYTES


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of one GPU. `kv_bytes` is what the engine may fill with KV; each part says how far to trust it."""

    total_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    kv_bytes: int
    provenance: Mapping[str, str]
    """`measured`, `modelled` or `assumed` by the name of the part; a figure of the fleet file counts as measured."""
    sources: Mapping[str, str]
    """Where each part comes from, by its name, in words."""


@dataclass(frozen=True)
class EngineDefaults:
    """What an engine takes where nobody sets it: sequences, tokens a step, share of the GPU's memory."""

    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float


def memory_budget(config: Mapping[str, Any], gpu: Gpu, engine: Engine, where: str = "config.json") -> MemoryBudget:
    """Memory of one `gpu` under `engine` with the model in a decoded config.json, in bytes.

    `kv_cache_memory_bytes`, `weights_bytes`, `activation_bytes`, `non_torch_bytes` and `cuda_graph_bytes` of the
    engine replace what is computed here. CapacityError where nothing is left for KV: it names the smallest
    tensor-parallel size that leaves some. Rules by engine and release: kv_memory.md §3.1.
    """
    budget = _budget(config, gpu, engine, where)
    if budget.kv_bytes > 0 and (engine.kv_cache_memory_bytes is None or _fits_as_told(budget)):
        return budget
    fitting = smallest_tensor_parallel_size(config, gpu, engine, where)
    raise CapacityError(_refusal(budget, gpu, engine, where, fitting))


def smallest_tensor_parallel_size(
    config: Mapping[str, Any],
    gpu: Gpu,
    engine: Engine,
    where: str = "config.json",
    kv_needed_bytes: Callable[[int], int] = lambda _: 0,
) -> int | None:
    """Smallest tensor-parallel size with more room for KV than `kv_needed_bytes(size)` on each GPU; None if none has.

    Sizes that do not divide the model are passed over. Weights that the fleet file states are spread over the size
    that is tried; what it states of libraries holds for its own size alone.
    """
    for size in range(1, LARGEST_TENSOR_PARALLEL_SIZE + 1):
        if not is_divisible(config, where, size):
            continue
        told = engine.weights_bytes
        scaled = None if told is None else told * engine.tensor_parallel_size // size
        libraries = engine.non_torch_bytes if size == engine.tensor_parallel_size else None
        trial = replace(engine, tensor_parallel_size=size, weights_bytes=scaled, non_torch_bytes=libraries)
        budget = _budget(config, gpu, trial, where)
        if budget.kv_bytes > kv_needed_bytes(size) and (engine.kv_cache_memory_bytes is None or _fits_as_told(budget)):
            return size
    return None


def is_divisible(config: Mapping[str, Any], where: str, tensor: int) -> bool:
    """Whether `tensor` ranks divide query heads and vocabulary, and divide or are divided by the KV heads."""
    read = read_config(config, where)
    heads, rows = whole(read, *HEADS), whole(read, "vocab_size") or 0
    if (heads is not None and heads % tensor) or -(-rows // VOCABULARY_STEP) * VOCABULARY_STEP % tensor:
        return False
    if whole(read, "kv_lora_rank"):
        return True
    held = kv_heads(read)
    return held % tensor == 0 or tensor % held == 0


def engine_defaults(gpu: Gpu, engine_name: str = "vllm", version: str | None = None) -> EngineDefaults:
    """What the engine takes on `gpu` where nobody sets it: vLLM goes by the GPU's memory (arg_utils.py)."""
    check_engine(engine_name)
    is_large = gpu.memory_bytes >= _LARGE_GPU_BYTES and "a100" not in gpu.name.lower() and release(version) >= (0, 8)
    sequences, tokens = (1024, 8192) if is_large else (256, 2048)
    if engine_name == "sglang":
        tokens = default_chunk_tokens(gpu)  # its share goes by more than the GPU (engine_settings.py)
    share = _SHARE_SINCE_0_33 if engine_name == "vllm" and (0, 33) <= release(version) != NEWEST else _SHARE
    return EngineDefaults(sequences, tokens, share)


_LARGE_GPU_BYTES = 70 * GIB
_SHARE, _SHARE_SINCE_0_33 = 0.9, 0.92


def _budget(config: Mapping[str, Any], gpu: Gpu, engine: Engine, where: str) -> MemoryBudget:
    check_engine(engine.name)
    parts = {
        "weights_bytes": _weights(config, gpu, engine, where),
        **(_vllm_parts(config, gpu, engine, where) if engine.name.startswith("vllm") else _other_parts(engine)),
    }
    told = {"activation_bytes": engine.activation_bytes, "non_torch_bytes": engine.non_torch_bytes}
    for name, value in told.items():
        if value is not None:
            parts[name] = (value, MEASURED, "fleet file")
    values = {name: value for name, (value, _, _) in parts.items()}
    requested, kv, kv_word = _shares(gpu, engine, values)
    provenance = {name: word for name, (_, word, _) in parts.items()}
    is_told = engine.kv_cache_memory_bytes is not None
    weakest = max(provenance.values(), key=(MEASURED, MODELLED, ASSUMED).index)
    return MemoryBudget(
        total_bytes=gpu.memory_bytes,
        requested_bytes=requested,
        kv_bytes=kv,
        provenance={**provenance, "total_bytes": MEASURED, "kv_bytes": MEASURED if is_told else weakest},
        sources={
            **{name: source for name, (_, _, source) in parts.items()},
            "total_bytes": gpu.sources.get("memory", gpu.name),
            "kv_bytes": kv_word,
        },
        **values,
    )


def _weights(config: Mapping[str, Any], gpu: Gpu, engine: Engine, where: str) -> tuple[int, str, str]:
    if engine.weights_bytes is not None:
        return engine.weights_bytes, MEASURED, "fleet file"
    own = model_shape(config, where).own_drafter_layers
    counted = weights(
        config,
        where,
        tensor=engine.tensor_parallel_size,
        pipeline=engine.pipeline_parallel_size,
        data=engine.data_parallel_size,
        drafter_layers=engine.drafter_layers or (own if engine.speculative_tokens else 0),
        layout=expert_layout(engine.name, gpu),
    )
    billions = counted.parameters.total / 1e9
    source = f"{billions:.3f} billion parameters counted from {where}, quantisation {counted.quantization}"
    return counted.per_gpu_bytes, MODELLED, source


def _vllm_parts(config: Mapping[str, Any], gpu: Gpu, engine: Engine, where: str) -> dict[str, tuple[int, str, str]]:
    start_up = vllm_start_up(engine.version)
    libraries = non_torch_bytes(start_up, engine.tensor_parallel_size)
    is_sorted = gpu.is_sampling_sorted and start_up.sort_bytes > 0
    graphs: tuple[int, str, str] = (0, ASSUMED, "not deducted by this release")
    if start_up.are_graphs_deducted:
        graphs = (0, ASSUMED, "deducted by this release but not predictable: give cuda_graph_bytes from your own log")
        if engine.cuda_graph_bytes is not None:
            graphs = (engine.cuda_graph_bytes, MEASURED, "fleet file")
    peak = 0
    if engine.activation_bytes is None:
        peak = activation_bytes(config, where, engine, start_up, is_sampling_sorted=is_sorted)
    return {
        "activation_bytes": (peak, ASSUMED, start_up.source + ("; " + gpu.sources["start_up"] if is_sorted else "")),
        "non_torch_bytes": (libraries, ASSUMED, start_up.source),
        "graph_bytes": graphs,
    }


def _other_parts(engine: Engine) -> dict[str, tuple[int, str, str]]:
    context = (CONTEXT_BYTES, ASSUMED, "free against total memory in H100 start-up logs")
    nothing = (0, ASSUMED, "inside what mem_fraction_static leaves")
    if engine.name == "sglang":
        return {"activation_bytes": nothing, "non_torch_bytes": context, "graph_bytes": nothing}
    runtime = (TENSORRT_RUNTIME_BYTES, ASSUMED, "Llama-3.1-8B fp8 on RTX 5090, Triton start-up log")
    return {"activation_bytes": runtime, "non_torch_bytes": context, "graph_bytes": (0, ASSUMED, "inside the runtime")}


def _shares(gpu: Gpu, engine: Engine, parts: Mapping[str, int]) -> tuple[int, int, str]:
    """Bytes the engine may take, bytes of them for KV, and the rule in words."""
    share, weight = engine.gpu_memory_utilization, parts["weights_bytes"]
    if engine.name == "sglang":
        requested = math.floor((gpu.memory_bytes - parts["non_torch_bytes"]) * share)
        kv, rule = requested - weight - parts["activation_bytes"], "free memory × mem_fraction_static − weights"
    elif engine.name == "tensorrt-llm":
        free = gpu.memory_bytes - sum(parts.values())
        requested, kv, rule = gpu.memory_bytes, math.floor(free * share), "share of what is free after loading"
    else:
        requested = math.ceil(gpu.memory_bytes * share)
        kv, rule = requested - sum(parts.values()), "total × utilisation − weights − activations − libraries − graphs"
    if engine.kv_cache_memory_bytes is not None:
        return requested, engine.kv_cache_memory_bytes, "kv_cache_memory_bytes of the fleet file"
    return requested, kv, rule


def _fits_as_told(budget: MemoryBudget) -> bool:
    """Whether KV of the told size fits the GPU beside the weights; the engine itself finds out while allocating."""
    return budget.weights_bytes + budget.kv_bytes <= budget.total_bytes


def _refusal(budget: MemoryBudget, gpu: Gpu, engine: Engine, where: str, fitting: int | None) -> str:
    rest = budget.activation_bytes + budget.non_torch_bytes + budget.graph_bytes
    what = (
        f"{where}: {budget.weights_bytes / GIB:.1f} GiB of weights on each GPU at tensor_parallel_size "
        f"{engine.tensor_parallel_size} do not fit {gpu.name}: at {engine.gpu_memory_utilization:g} the engine has "
        f"{budget.requested_bytes / GIB:.1f} of its {budget.total_bytes / GIB:.1f} GiB, {rest / GIB:.1f} of them for "
        "activations and libraries"
    )
    if engine.kv_cache_memory_bytes is not None:
        what = (
            f"{where}: {budget.weights_bytes / GIB:.1f} GiB of weights and {budget.kv_bytes / GIB:.1f} GiB of "
            f"kv_cache_memory_bytes do not fit {gpu.name} ({budget.total_bytes / GIB:.1f} GiB)"
        )
    if fitting is None:
        return (
            f"{what}; no tensor_parallel_size fits: take a larger GPU, more pipeline stages or a smaller weight dtype"
        )
    return f"{what}; the smallest tensor_parallel_size that fits with KV left is {fitting}"
