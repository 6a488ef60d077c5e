"""The traffic of each window of a week, summed up for the closed forms of latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.timeline import accepted
from transforms.planner.sizing.latency_estimate import ATTAINED_RATIO, Traffic
from transforms.workload import MICROS, WEEK_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.attempts import Attempts
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]

MINUTE_S = 60
SAMPLE_ROWS = 256
"""Prompts kept per window, evenly spaced by length: enough for a 95 % quantile."""


@dataclass(frozen=True, eq=False)
class Window:
    """One span the objective is judged over, and its traffic."""

    start_s: int
    """Since the week's start."""
    requests: int
    """Those refused included."""
    traffic: Traffic


def windows_of(workload: Workload, replica: Replica, number: int | None = None) -> list[Window]:
    """Windows of the week in which requests arrived, in order; prompts the engine refuses are counted, not timed.

    `number`: only the window of that number.
    """
    starts_s = np.arange(0, WEEK_S, replica.window_s)
    edges = np.searchsorted(workload.arrived_us, np.append(starts_s, WEEK_S) * MICROS)
    spans = list(zip(starts_s, edges[:-1], edges[1:], strict=True))
    windows = []
    for start_s, low, high in spans if number is None else spans[number : number + 1]:
        if low < high:
            attempts = workload.at(slice(low, high))
            windows.append(Window(int(start_s), attempts.rows, _traffic(attempts, accepted(attempts, replica))))
    return windows


def _traffic(attempts: Attempts, is_accepted: NDArray[np.bool_]) -> Traffic:
    refused_ratio = float(attempts.rows - is_accepted.sum()) / attempts.rows
    columns = (attempts.prompt_tokens, attempts.cached_tokens, attempts.output_tokens)
    prompt, cached, output = (values[is_accepted] for values in columns)
    if not len(prompt):
        return Traffic(0.0, 0.0, 0.0, prompt, cached, refused_ratio)
    weights = np.maximum(output, 1.0)
    order = np.argsort(prompt - cached, kind="stable")
    picked = order[np.linspace(0, len(order) - 1, min(len(order), SAMPLE_ROWS)).round().astype(np.int64)]
    return Traffic(
        requests_per_s=_seen_rate(attempts.arrived_us[is_accepted]),
        output_mean_tokens=float(output.mean()),
        context_mean_tokens=float(((prompt + output / 2) * weights).sum() / weights.sum()),
        prompt_tokens=prompt[picked],
        cached_tokens=cached[picked],
        refused_ratio=refused_ratio,
    )


def _seen_rate(arrived_us: NDArray[np.int64]) -> float:
    """Rate per second that 95 % of the requests saw at most: quantile of the rate of their minute, by requests."""
    minutes = arrived_us // (MINUTE_S * MICROS)
    counts = np.sort(np.unique(minutes, return_counts=True)[1])
    seen = np.cumsum(counts) / counts.sum()
    return float(counts[np.searchsorted(seen, ATTAINED_RATIO)]) / MINUTE_S
