"""Near saturation chance decides: the verdict and the latencies of one trace as intervals, over where it is begun."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.rate_scaling import rotated
from transforms.planner.replay.replay_summary import quantiles_of
from transforms.planner.replay.replay_types import Status
from transforms.planner.replay.verdict import BACKLOGGED, LEAST_WAITING, OVERLOADED, STABLE, verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult, Settings
    from transforms.planner.replay.step_costs import StepCosts

ROTATIONS = 4
MOST_REQUESTS = 2_000_000
"""Longer traces are replayed once: they average chance out by themselves."""


def near_saturation(
    trace: ReplayTrace, settings: Settings, costs: StepCosts, result: ReplayResult, seed: int
) -> dict[str, Any] | None:
    """How far chance reaches: verdicts and [lowest, highest] of each latency over `ROTATIONS` + 1 replays.

    The others begin the trace at another moment, drawn by `seed`, and append what came before. None where fewer than
    `LEAST_WAITING` requests ever waited: such a replay is far from saturation.
    """
    columns = trace.columns
    first = verdict_of(result, columns.parent)
    if first.peak_waiting_requests < LEAST_WAITING or not 1 < columns.rows <= MOST_REQUESTS:
        return None
    words, found = [first.word], [quantiles_of(result, result.status == Status.COMPLETED)]
    for share in np.random.default_rng(seed).random(ROTATIONS):
        again = rotated(trace, float(share) * trace.span_s)
        other = replay(again.columns, settings, costs)
        words.append(verdict_of(other, again.columns.parent).word)
        found.append(quantiles_of(other, other.status == Status.COMPLETED))
    counts = Counter(words)
    return {
        "replays": len(words),
        "verdicts": {word: counts[word] for word in (STABLE, BACKLOGGED, OVERLOADED) if counts[word]},
        "latencies": {name: _ranges([each[name] for each in found]) for name in found[0]},
    }


def _ranges(figures: Sequence[dict[str, float | None]]) -> dict[str, list[float] | None]:
    """[lowest, highest] of each figure; None where a replay has none."""
    ranges: dict[str, list[float] | None] = {}
    for name in figures[0]:
        known = [value for each in figures if (value := each[name]) is not None]
        ranges[name] = [min(known), max(known)] if len(known) == len(figures) else None
    return ranges
