"""Time of one engine iteration from the hardware's limits, and the closed forms a plan needs of it. No numpy here.

step = max(compute, memory) + collectives + overhead per step + overhead per sequence. A mixture of experts reads those
its tokens are expected to ask for, E·(1 − (1 − k/E)^tokens). The formulas take floats or arrays alike (`largest` and
`ceiling` say how to take a maximum and round up); pace.py has the arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

Number = TypeVar("Number", float, "NDArray[np.float64]")
"""A float, or an array of them."""


@dataclass(frozen=True)
class StepModel:
    """All GPUs of one engine (a replica, or one of its data-parallel ranks); ceilings are already peak × efficiency."""

    token_flop: float
    """2 × (active parameters − embedding − lm_head): work per token, whatever its context."""
    sampled_flop: float
    """lm_head: work per sampled position."""
    pair_flop: float
    """4 × layers × heads × head_dim: attention work per (new token × context token)."""
    weight_bytes: float
    """Weight bytes every step reads: all but the input embedding and the routed experts."""
    kv_token_bytes: float
    flop_per_s: float
    bytes_per_s: float
    peak_flop_per_s: float
    """Without the efficiency: what the floors are taken against."""
    peak_bytes_per_s: float
    token_collective_s: float = 0.0
    step_overhead_s: float = 0.0
    """Per step: launch and scheduling, and the latency of the collectives."""
    sequence_overhead_s: float = 0.0
    """Per decoding sequence and step."""
    speculative_tokens: int = 0
    provenance: str = "assumed"
    sampled_s: float | None = None
    """Seconds of compute per sampled position; None: at `flop_per_s`. So the next ones: None is the common ceiling."""
    pair_s: float | None = None
    """Seconds of compute per attention pair."""
    prefill_pair_ratio: float = 1.0
    """Attention work of a prefill pair against a decode pair: latent attention decodes on what it caches."""
    context_s: float | None = None
    """Seconds of reading per context token."""
    sequence_s: float = 0.0
    """Seconds of reading per decoding sequence: windows and states."""
    experts: float = 1.0
    """Routed experts of a layer; 1 that nobody asks for in a dense model."""
    experts_per_token: float = 0.0
    expert_bytes: float = 0.0
    """All routed experts of all layers."""
    expert_s: float = 0.0
    """Seconds of reading all routed experts."""

    @property
    def base_s(self) -> float:
        """Seconds of a step that reads all weights and does nothing else."""
        return self.weight_bytes / self.bytes_per_s + self.expert_s + self.step_overhead_s

    @property
    def sampled_compute_s(self) -> float:
        """Seconds of compute per sampled position."""
        return self.sampled_flop / self.flop_per_s if self.sampled_s is None else self.sampled_s

    @property
    def pair_compute_s(self) -> float:
        """Seconds of compute per (new token × context token) in decode."""
        return self.pair_flop / self.flop_per_s if self.pair_s is None else self.pair_s

    @property
    def context_memory_s(self) -> float:
        """Seconds of reading per context token."""
        return self.kv_token_bytes / self.bytes_per_s if self.context_s is None else self.context_s

    @property
    def unasked_ratio(self) -> float:
        """Probability that one token does not ask for a given expert."""
        return 1 - self.experts_per_token / self.experts


def of_rank(model: StepModel, ranks: int) -> StepModel:
    """Step of one of `ranks` data-parallel ranks by its own work, from `model` of the step of all of them together.

    The other ranks are taken to carry as much meanwhile: a step of experts waits for their tokens too. Without experts
    it is what one rank alone takes. Floors are of a rank's share of the hardware.
    """
    if ranks == 1:
        return model
    return replace(
        model,
        weight_bytes=model.weight_bytes / ranks,
        flop_per_s=model.flop_per_s / ranks,
        bytes_per_s=model.bytes_per_s / ranks,
        peak_flop_per_s=model.peak_flop_per_s / ranks,
        peak_bytes_per_s=model.peak_bytes_per_s / ranks,
        token_collective_s=model.token_collective_s * ranks,
        sequence_overhead_s=model.sequence_overhead_s * ranks,
        sampled_s=None if model.sampled_s is None else model.sampled_s * ranks,
        pair_s=None if model.pair_s is None else model.pair_s * ranks,
        context_s=None if model.context_s is None else model.context_s * ranks,
        sequence_s=model.sequence_s * ranks,
        experts_per_token=model.experts * (1 - model.unasked_ratio**ranks),
        expert_bytes=model.expert_bytes / ranks,
    )


@dataclass(frozen=True)
class Batch:
    """What one prompt's prefill shares its steps with, and the prefill tokens a step has room for."""

    chunk_tokens: float
    decode_requests: float
    context_tokens: float
    """Mean context of the decoding requests."""


def step_s(
    model: StepModel,
    prefill_tokens: float,
    decode_requests: float,
    context_tokens: float,
    prefill_context_tokens: float = 0.0,
) -> float:
    """Seconds of one step: a prefill chunk beside decoding requests of mean context `context_tokens`.

    `prefill_context_tokens` is the mean context the chunk's tokens attend to.
    """
    return step_of(model, prefill_tokens, decode_requests, context_tokens, prefill_context_tokens, largest=max)


def step_of(
    model: StepModel,
    prefill_tokens: Number,
    decode_requests: Number,
    context_tokens: Number,
    prefill_context_tokens: Number,
    *,
    largest: Callable[[Number, Number], Number],
) -> Number:
    """Seconds of one step each, for floats or arrays; `largest` is max or np.maximum."""
    tokens = prefill_tokens + decode_requests
    decode_pairs = decode_requests * context_tokens
    prefill_pairs = prefill_tokens * prefill_context_tokens * model.prefill_pair_ratio
    compute_s = (
        model.token_flop / model.flop_per_s * tokens
        + model.sampled_compute_s * decode_requests
        + model.pair_compute_s * (decode_pairs + prefill_pairs)
    )
    memory_s = (
        model.weight_bytes / model.bytes_per_s
        + model.expert_s * (1 - model.unasked_ratio**tokens)
        + model.context_memory_s * (decode_pairs + prefill_context_tokens)
        + model.sequence_s * decode_requests
    )
    rest_s = model.step_overhead_s + model.sequence_overhead_s * decode_requests + model.token_collective_s * tokens
    return largest(compute_s, memory_s) + rest_s


def prefill_s(model: StepModel, prompt_tokens: float, cached_tokens: float, batch: Batch) -> float:
    """Seconds from the first chunk of a prompt to its first token, beside a constant batch, without a queue."""
    return prefill_of(model, prompt_tokens, cached_tokens, batch, largest=max, ceiling=_ceiling)


def prefill_of(
    model: StepModel,
    prompt_tokens: Number,
    cached_tokens: Number,
    batch: Batch,
    *,
    largest: Callable[[Number, Number], Number],
    ceiling: Callable[[Number], Number],
) -> Number:
    """Seconds of prefill each, for floats or arrays: the steps' sums, with one roofline term binding throughout.

    The batch beside it is paid in each of the steps; its own attention is exact, (P² − c²)/2 pairs.
    """
    new_tokens = prompt_tokens - cached_tokens
    steps = ceiling(new_tokens / batch.chunk_tokens)
    beside = steps * batch.decode_requests
    beside_pairs = beside * batch.context_tokens
    own_pairs = new_tokens * (prompt_tokens + cached_tokens) / 2 * model.prefill_pair_ratio
    compute_s = (
        model.token_flop / model.flop_per_s * (new_tokens + beside)
        + model.sampled_compute_s * (beside + 1)
        + model.pair_compute_s * (own_pairs + beside_pairs)
    )
    step_tokens = new_tokens / steps + batch.decode_requests
    memory_s = (
        steps * (model.weight_bytes / model.bytes_per_s + model.expert_s * (1 - model.unasked_ratio**step_tokens))
        + model.context_memory_s * (beside_pairs + steps * (prompt_tokens + cached_tokens) / 2)
        + model.sequence_s * beside
    )
    rest_s = steps * model.step_overhead_s + beside * model.sequence_overhead_s
    collective_s = model.token_collective_s * (new_tokens + beside)
    return largest(compute_s, memory_s) + rest_s + collective_s


def pool_step_s(model: StepModel, decode_requests: float, resident_tokens: float) -> float:
    """Seconds of a decode step that reads `resident_tokens` tokens of KV, however they are shared out."""
    return step_s(model, 0.0, decode_requests, resident_tokens / decode_requests)


def largest_batch(
    model: StepModel, context_tokens: float, *, capacity_tokens: float, max_requests: int, tpot_s: float
) -> int:
    """Most requests of this context (≥ 1) that fit the KV, the engine's own limit and the time per output token."""
    fitting = min(max_requests, int(capacity_tokens // max(context_tokens, 1.0)))
    return largest_within(lambda batch: step_s(model, 0.0, batch, context_tokens), fitting, tpot_s)


def largest_within(seconds_of: Callable[[int], float], most: int, limit_s: float) -> int:
    """Largest whole number in 1 … `most` whose rising `seconds_of` is within `limit_s`; 1 where none is."""
    low, high = 1, max(1, most)
    while low < high:
        middle = (low + high + 1) // 2
        if seconds_of(middle) <= limit_s:
            low = middle
        else:
            high = middle - 1
    return low


def ttft_floor_s(model: StepModel, prompt_tokens: float, cached_tokens: float) -> float:
    """Seconds below which no first token can come: the prompt's own work at the replica's full peak."""
    return model.token_flop * (prompt_tokens - cached_tokens) / model.peak_flop_per_s


def step_floor_s(model: StepModel) -> float:
    """Seconds below which no step can be: reading the weights of one token at the replica's full bandwidth."""
    asked = model.expert_bytes * model.experts_per_token / model.experts
    return (model.weight_bytes + asked) / model.peak_bytes_per_s


def _ceiling(value: float) -> float:
    return float(math.ceil(value))
