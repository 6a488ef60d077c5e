"""What engines were seen to spend at start-up beside the weights: activations, libraries; by engine and release.

Fitted to public start-up logs. Every figure here is assumed for any other machine: the fleet file's activation_bytes,
non_torch_bytes and cuda_graph_bytes replace them with what your own log says.

Known misses: Mistral-Small-3.2 under 0.11 logged 2.12 GiB of activations where this says 4.97; 0.29 prints
activations and its graph estimate as one figure; no log of TP 2 or more over PCIe under 0.18 or later was found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError, nearest
from transforms.planner.model.config_reading import HIDDEN, needed, read_config
from transforms.planner.model.feed_forward_parameters import inner_sizes
from transforms.planner.model.model_families import family_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Engine

GIB = 1 << 30
ENGINES = ("vllm", "vllm-ascend", "sglang", "tensorrt-llm")
NEWEST = (1 << 30,)

_ACCURACY_REPORT = "llm-d-planner capacity planner accuracy report, 60 runs of vLLM 0.19.0 on H100"
_MEMORY_RESULTS = "llm-d-benchmark empirical-vllm-memory-results.md, vLLM 0.11 on H100"


@dataclass(frozen=True)
class StartUp:
    """Constants of vLLM from one release on; bytes per value unless the name says otherwise."""

    since: tuple[int, ...]
    logit_bytes: float
    """Per sequence and vocabulary row while sampling: logits, probabilities, noise, and what sorting needs."""
    sort_bytes: float
    """The same again where sampling sorts although this release has a kernel that does not."""
    hidden_factor: float
    """Copies of the hidden state that a forward pass holds beside the feed-forward's inner values."""
    non_torch_bytes: Mapping[int, int]
    """By tensor-parallel size: what the CUDA libraries and NCCL hold."""
    is_workspace_kept: bool
    """Whether routed experts keep their workspace through sampling."""
    are_graphs_deducted: bool
    source: str


SORT_BYTES = 12.0  # float32 values and 64-bit indices of logits.sort (vLLM v1/sample/ops/topk_topp_sampler.py)
# Forward passes: 2.07 and 2.99 GiB at 20,000 and 29,000 tokens of Llama-3.1-8B (vLLM 0.6, vllm-project/vllm#10517) are
# 2 × (3 × inner + 2.9 × hidden) bytes a token; CodeLlama-7b and granite-3.1-8b under 0.19 give 4.25.
# Sampling: logits in 16 bits and float32, probabilities and noise in float32 are 14 bytes; sorting for top-p made it
# 37.75 until 0.16 (Qwen3-14B: 5.64 GiB until 0.16, 2.23 GiB from 0.17). Both scale with sequences: 1.40 GiB at 256.
VLLM = (
    StartUp((0,), 37.75, 0, 2.9, {1: round(0.35 * GIB)}, False, False, "vllm-project/vllm#10517, vLLM 0.6 (V0)"),
    StartUp((0, 8), 37.75, 0, 4.25, {1: round(0.13 * GIB), 2: round(0.55 * GIB)}, False, False, _MEMORY_RESULTS),
    StartUp(
        (0, 17), 14.3, SORT_BYTES, 4.25, {1: round(0.13 * GIB), 2: round(0.55 * GIB)}, True, False, _ACCURACY_REPORT
    ),
    StartUp(
        (0, 18),
        14.3,
        SORT_BYTES,
        4.25,
        {1: round(0.25 * GIB), 2: round(2.07 * GIB), 4: round(2.15 * GIB)},
        True,
        False,
        _ACCURACY_REPORT,
    ),
    StartUp(
        (0, 21),
        14.3,
        SORT_BYTES,
        4.25,
        {1: round(0.25 * GIB), 2: round(2.07 * GIB), 4: round(2.15 * GIB)},
        True,
        True,
        f"{_ACCURACY_REPORT}; CUDA graphs deducted since 0.21 (gpu_worker.py)",
    ),
)
SAMPLING_FIXED_BYTES = round(0.035 * GIB)  # intercept over the 22 dense models of the accuracy report
SAMPLING_HIDDEN_FACTOR = 1.6  # hidden states kept while sampling: 1.86 GiB at 4,096 and 1.96 at 8,192 (same report)
VISION_BYTES = round(0.2 * GIB)  # Gemma-3, Mistral-Small-3.1, MiMo-VL against the same without a tower (same report)
VALUE_BYTES = 2


def release(version: str | None) -> tuple[int, ...]:
    """Numbers of an engine version such as "0.11.2rc1" as (0, 11, 2); without a version the newest there can be."""
    if version is None:
        return NEWEST
    numbers = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    if numbers is None:
        raise CatalogError(f"engine version '{version}' has no number; give one such as 0.19.0, or leave it out")
    return tuple(int(part) for part in numbers.group(1).split("."))


def vllm_start_up(version: str | None) -> StartUp:
    """Constants of the vLLM release `version` (the newest known without one)."""
    wanted = release(version)
    return next(s for s in reversed(VLLM) if s.since <= wanted)


def check_engine(name: str) -> None:
    """Raise CatalogError unless we know how the engine `name` divides memory."""
    if name not in ENGINES:
        raise CatalogError(f"unknown engine '{name}'{nearest(name, ENGINES)}; known are {', '.join(ENGINES)}")


def non_torch_bytes(start_up: StartUp, tensor: int) -> int:
    """Bytes per GPU that libraries hold at `tensor`-way parallelism: of the largest size measured up to it."""
    return start_up.non_torch_bytes[max(size for size in start_up.non_torch_bytes if size <= tensor)]


def activation_bytes(
    config: Mapping[str, Any], where: str, engine: Engine, start_up: StartUp, *, is_sampling_sorted: bool = False
) -> int:
    """Peak bytes per GPU of one profiling step: its forward pass or its sampling, whichever is larger.

    The profiling step has max_num_batched_tokens tokens and samples for max_num_seqs sequences over the whole
    vocabulary on every rank; its length does not depend on max_model_len (but for V0 without chunked prefill).
    """
    read = read_config(config, where)
    family = family_of(read.model_type, read.architecture, where)
    hidden, vocabulary = needed(read, *HIDDEN), needed(read, "vocab_size")
    dense, expert, taken = inner_sizes(read, family)
    tensor, tokens = engine.tensor_parallel_size, step_tokens(engine, start_up)
    sequences = min(engine.max_num_seqs, tokens)
    per_token = 3 * (dense or 0) / tensor + start_up.hidden_factor * hidden
    forward = VALUE_BYTES * tokens * per_token
    logit_bytes = start_up.logit_bytes + (start_up.sort_bytes if is_sampling_sorted else 0.0)
    sampling = logit_bytes * sequences * vocabulary + SAMPLING_FIXED_BYTES
    sampling += VALUE_BYTES * tokens * SAMPLING_HIDDEN_FACTOR * hidden
    workspace = _expert_workspace_bytes(hidden, expert / tensor, taken, tokens)
    is_kept = start_up.is_workspace_kept and str(read.quantization.get("quant_method")) != "mxfp4"
    vision = VISION_BYTES if config.get("vision_config") and start_up.is_workspace_kept else 0
    return round(max(forward + workspace, sampling + (workspace if is_kept else 0)) + vision)


def step_tokens(engine: Engine, start_up: StartUp) -> int:
    """Tokens of the profiling step: the batch limit, or one whole prompt where V0 does not chunk prefill."""
    is_v0 = start_up.since == VLLM[0].since
    length = engine.max_model_len
    if is_v0 and length is not None and length <= V0_CHUNKS_ABOVE_TOKENS:
        return length
    return engine.max_num_batched_tokens


V0_CHUNKS_ABOVE_TOKENS = 32768
"""vLLM V0 turned chunked prefill on by itself for longer models only (arg_utils.py, 0.6)."""


def _expert_workspace_bytes(hidden: int, inner: float, taken: int, tokens: int) -> float:
    """Both scratch tensors of the fused experts and their output (vLLM fused_moe.py: caches 1 and 3 share memory)."""
    if not taken:
        return 0.0
    return VALUE_BYTES * tokens * (taken * (max(2 * inner, hidden) + inner) + hidden)
