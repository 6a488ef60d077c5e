"""A load test against the model of a plan: the same requests measured and replayed, and what the gap implies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.errors import InputError
from transforms.planner.replay.replay_summary import measures, quantile_of_sorted
from transforms.planner.replay.replay_types import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import Logged, ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult

    Reals = NDArray[np.float64]

LEAST_REQUESTS = 50
"""Fewer measured requests say nothing of a 95 % quantile."""

BINDING = ("tpot_p50_s", "tpot_p95_s", "output_tokens_per_s", "kv_mean_tokens")
"""Measures that the safety factor is taken from: TTFT near saturation multiplies small errors, and is only shown."""

HIGHER_IS_BETTER = ("output_tokens_per_s",)


def compared(trace: ReplayTrace, result: ReplayResult) -> dict[str, Any]:
    """Measured and predicted TTFT, TPOT, throughput and mean KV of the requests answered in both, and their ratios.

    `safety_factor` (≥ 1) is by how much the plan was too hopeful at the worst of BINDING. InputError for too few.
    """
    logged = trace.logged
    is_both = np.isfinite(logged.ttft_s) & np.isfinite(logged.e2e_s) & (result.status == Status.COMPLETED)
    if is_both.sum() < LEAST_REQUESTS:
        raise InputError(
            f"{int(is_both.sum())} requests have a first token and an end, both measured and replayed; "
            f"{LEAST_REQUESTS} are needed to compare"
        )
    measured = _figures(trace, logged, trace.columns.arrived_s, is_both)
    predicted = _figures(trace, result, result.arrived_s, is_both)
    rows = [
        {
            "measure": name,
            "predicted": predicted[name],
            "measured": measured[name],
            "measured_to_predicted_factor": measured[name] / predicted[name] if predicted[name] else None,
        }
        for name in measured
    ]
    return {"compared_requests": int(is_both.sum()), "figures": rows, "safety_factor": _safety_factor(rows)}


def _figures(
    trace: ReplayTrace, times: ReplayResult | Logged, arrived_s: Reals, chosen: NDArray[np.bool_]
) -> dict[str, float]:
    """Quantiles of TTFT and TPOT, output tokens/s, and mean tokens with a KV slot, token-linear."""
    prompt = trace.columns.prompt_tokens[chosen].astype(np.float64)
    output = trace.columns.output_tokens[chosen].astype(np.float64)
    begin, first, end = np.nan_to_num(times.queue_s[chosen]), times.ttft_s[chosen], times.e2e_s[chosen]
    tpot = np.sort(measures(times, trace.columns.output_tokens)["tpot_s"][chosen][output > 1])
    span_s = float((arrived_s[chosen] + end).max() - arrived_s[chosen].min())
    held = prompt / 2 * np.maximum(first - begin, 0.0) + (prompt + output / 2) * (end - first)
    timed = {"ttft": np.sort(first), "tpot": tpot}
    return {
        **{
            f"{name}_{word}_s": quantile_of_sorted(values, ratio) if len(values) else math.nan
            for name, values in timed.items()
            for word, ratio in (("p50", 0.5), ("p95", 0.95))
        },
        "output_tokens_per_s": float(output.sum()) / span_s,
        "kv_mean_tokens": float(held.sum()) / span_s,
    }


def _safety_factor(rows: list[dict[str, Any]]) -> float:
    factors = [1.0]
    for row in rows:
        ratio = row["measured_to_predicted_factor"]
        if row["measure"] in BINDING and ratio and math.isfinite(ratio):
            factors.append(1 / ratio if row["measure"] in HIGHER_IS_BETTER else ratio)
    return max(factors)
