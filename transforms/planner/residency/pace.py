"""The pace a fleet that keeps its promise would run at, and what work costs at that pace, as arrays over requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.steps.step_time import (
    Batch,
    largest_batch,
    largest_within,
    pool_step_s,
    prefill_of,
    step_of,
    step_s,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from transforms.planner.sizing.replica import Replica

    Reals = NDArray[np.float64]

EXPERT_ROUNDS = 32
"""Halvings towards the batch whose tokens ask for as many experts as its time leaves room to read."""


@dataclass(frozen=True)
class Pace:
    """SLO pace of a rank: what a prefill shares its steps with, and seconds per output token after the first.

    Both are taken with the pool full, which is when capacity matters. So they depend on the replica alone: adding
    requests never makes the others leave earlier, and KV demand can only grow.
    """

    beside: Batch
    token_s: float
    is_tpot_met: bool
    """False where even one request cannot decode within the promise while the pool is full."""
    slack_factor: float
    """Promised time per output token over that of a step with a full pool."""


@dataclass(frozen=True)
class PlannedBatch:
    """B*: the largest batch of a rank that fits the KV on the observed lengths and meets the time per output token."""

    batch_requests: int
    context_tokens: float
    """Mean context of an output token: P + O/2, weighted by outputs."""
    step_s: float


def slo_pace(replica: Replica) -> Pace:
    """Pace of `replica` with a full pool and as many sequences as its engine and its time per output token allow."""
    pool_tokens = float(replica.rank_capacity_tokens)
    most = min(replica.max_num_seqs, replica.rank_capacity_tokens)
    batch = largest_within(lambda requests: pool_step_s(replica.step, requests, pool_tokens), most, replica.tpot_p95_s)
    full_s = pool_step_s(replica.step, batch, pool_tokens)
    chunk_tokens = max(1, replica.max_num_batched_tokens - batch)
    return Pace(
        beside=Batch(chunk_tokens, batch, pool_tokens / batch),
        token_s=min(replica.tpot_p95_s, full_s),
        is_tpot_met=full_s <= replica.tpot_p95_s,
        slack_factor=replica.tpot_p95_s / full_s,
    )


def planned_batch(replica: Replica, lengths: Iterable[tuple[Reals, Reals]]) -> PlannedBatch | None:
    """B* on the observed lengths (prompts and outputs, in parts); None where nothing decodes."""
    decoded = contexts = 0.0
    for prompt_tokens, output_tokens in lengths:
        weights = np.maximum(output_tokens - 1, 0)
        decoded += float(weights.sum())
        contexts += float(((prompt_tokens + output_tokens / 2) * weights).sum())
    if decoded == 0:
        return None
    context_tokens = contexts / decoded
    batch = largest_batch(
        replica.step,
        context_tokens,
        capacity_tokens=replica.rank_capacity_tokens,
        max_requests=replica.max_num_seqs,
        tpot_s=replica.tpot_p95_s,
    )
    return PlannedBatch(batch, context_tokens, step_s(replica.step, 0.0, batch, context_tokens))


def prefill_times_s(replica: Replica, pace: Pace, prompt_tokens: Reals, cached_tokens: Reals) -> Reals:
    """Seconds of prefill beside the full pool, each."""
    return prefill_of(replica.step, prompt_tokens, cached_tokens, pace.beside, largest=np.maximum, ceiling=np.ceil)


def prefill_work_s(replica: Replica, pace: Pace, prompt_tokens: Reals, cached_tokens: Reals) -> Reals:
    """Replica-seconds that each prompt's prefill takes when steps are filled with prompts: its share of full chunks."""
    chunk = np.full(prompt_tokens.shape, float(pace.beside.chunk_tokens))
    nobody = np.zeros(prompt_tokens.shape)
    context = (prompt_tokens + cached_tokens) / 2
    full_s = step_of(replica.step, chunk, nobody, nobody, context, largest=np.maximum)
    work_s: Reals = (prompt_tokens - cached_tokens) / chunk * full_s / replica.ranks
    return work_s


def decode_work_s(replica: Replica, prompt_tokens: Reals, output_tokens: Reals) -> Reals:
    """Replica-seconds that each request's decode takes at step_s(B*)/B* per token, B* that of its own length.

    Pricing each length by itself, not all by the mean, keeps the work of one request independent of the others; where
    one limit binds throughout, the price is linear in the context and both come to the same.
    """
    context = np.maximum(prompt_tokens + output_tokens / 2, 1.0)
    batch = _batches(replica, context)
    nobody = np.zeros(context.shape)
    price_s = step_of(replica.step, nobody, batch, context, nobody, largest=np.maximum) / batch
    work_s: Reals = np.maximum(output_tokens - 1, 0) * price_s / replica.ranks
    return work_s


def _batches(replica: Replica, context: Reals) -> Reals:
    """Largest batch (≥ 1, not rounded) of requests of each context under KV, engine limit and time per output token."""
    by_kv = replica.rank_capacity_tokens / context
    largest: Reals = np.minimum(np.minimum(by_kv, _promised(replica, context)), float(replica.max_num_seqs))
    return np.maximum(largest, 1.0)


def _promised(replica: Replica, context: Reals) -> Reals:
    """Batch of requests of each context at which a step takes the time promised per output token, not rounded."""
    step = replica.step
    per_request_s = step.sequence_overhead_s + step.token_collective_s
    compute_s = step.token_flop / step.flop_per_s + step.sampled_compute_s + step.pair_compute_s * context
    memory_s = step.context_memory_s * context + step.sequence_s + per_request_s
    by_compute = (replica.tpot_p95_s - step.step_overhead_s) / (compute_s + per_request_s)
    left_s = replica.tpot_p95_s - step.base_s + step.expert_s
    most: Reals = np.minimum(by_compute, left_s / memory_s)
    low, high = np.zeros_like(most), np.maximum(most, 0.0)
    for _ in range(EXPERT_ROUNDS if step.expert_s else 0):
        middle = (low + high) / 2
        fits = step.expert_s * (1 - step.unasked_ratio**middle) + memory_s * middle <= left_s
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return low if step.expert_s else most
