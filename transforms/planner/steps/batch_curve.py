"""Throughput against time per output token over batch sizes: what a larger batch gains, and what it costs each user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.sizing.arithmetic import batch_gain_factor
from transforms.planner.steps.step_time import Batch, prefill_s, step_s

if TYPE_CHECKING:
    from transforms.planner.sizing.replica import Replica

POINTS_PER_DOUBLING = 8


def batch_curve(replica: Replica, context_tokens: float, prompt_tokens: float) -> pl.DataFrame:
    """Batch curve over 1 … 2 × max_num_seqs for requests of these mean lengths, columns of plan_batch_curve.

    Of one engine: of the replica, or of each of its data-parallel ranks while the others carry as much.

    The turning point is the largest batch at which one more sequence still raises throughput by at least the share it
    raises the time per token; the recommended batch is the largest that fits the KV and keeps both objectives.
    """
    most = 2 * replica.max_num_seqs
    batches = np.arange(1, most + 2)
    tpot_s = np.array([step_s(replica.step, 0.0, int(batch), context_tokens) for batch in batches])
    rate = batches / tpot_s
    ttft_s = np.array([_ttft_s(replica, int(batch), context_tokens, prompt_tokens) for batch in batches])
    is_kv_ok = batches * context_tokens <= replica.rank_capacity_tokens
    is_slo_ok = (tpot_s <= replica.tpot_p95_s) & (ttft_s <= replica.ttft_p95_s)
    turning = _turning_point(rate, tpot_s)
    recommended = int(batches[:-1][(is_kv_ok & is_slo_ok)[:-1]].max(initial=0))
    marked = {turning, recommended, replica.max_num_seqs, int(batches[is_kv_ok].max(initial=1))}
    shown = np.isin(batches, sorted(_grid(most) | marked)) & (batches <= most)
    return pl.DataFrame(
        {
            "batch_requests": batches[shown],
            "throughput_tokens_per_s": rate[shown],
            "tpot_s": tpot_s[shown],
            "ttft_s": ttft_s[shown],
            "rule_of_thumb_factor": [batch_gain_factor(int(batch)) for batch in batches[shown]],
            "is_kv_ok": is_kv_ok[shown],
            "is_slo_ok": is_slo_ok[shown],
            "is_turning_point": batches[shown] == turning,
            "is_recommended": batches[shown] == recommended,
            "is_today": batches[shown] == replica.max_num_seqs,
        }
    )


def _turning_point(rate: np.ndarray, tpot_s: np.ndarray) -> int:
    """Largest batch whose last sequence gained at least the share of throughput that it cost in time per token."""
    gain = rate[1:] / rate[:-1] - 1
    growth = tpot_s[1:] / tpot_s[:-1] - 1
    worth = np.flatnonzero(gain[:-1] >= growth[:-1])
    return int(worth[-1]) + 2 if len(worth) else 1


def _ttft_s(replica: Replica, batch: int, context_tokens: float, prompt_tokens: float) -> float:
    chunk_tokens = max(1, replica.max_num_batched_tokens - batch + 1)
    return prefill_s(replica.step, prompt_tokens, 0.0, Batch(chunk_tokens, batch - 1, context_tokens))


def _grid(most: int) -> set[int]:
    doublings = np.log2(most)
    points = 2.0 ** np.linspace(0, doublings, int(np.ceil(doublings * POINTS_PER_DOUBLING)) + 1)
    return {int(point) for point in points.round()}
