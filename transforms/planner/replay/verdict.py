"""Does a replay keep up: stable, backlogged or overloaded, from the trend of its backlog.

The backlog at a moment is the requests that have arrived and have not begun; those that left the queue unserved
(time-outs, a full queue) stay in it, so that giving up does not pass for keeping up. A queue of a system that keeps
up wanders like a random walk: after n arrivals by about √n requests. So a rise of b requests over n arrivals counts
b/√n deviations, whatever the rate or the size of the fleet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.replay_types import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_types import ReplayResult

    Reals = NDArray[np.float64]

STABLE, BACKLOGGED, OVERLOADED = "stable", "backlogged", "overloaded"

BURST_DEVIATIONS = 5.0
"""A rise beyond chance: M/M/1 at 95 % load reaches 4 once in a million arrivals."""
TREND_DEVIATIONS = 1.0
"""What is still waiting at the last arrival, against √ of all arrivals: at 110 % load 4 after 2,000, 9 after 10,000."""
LEAST_WAITING = 10.0
LAST_SHARE = 0.05
"""The end's backlog is the mean over the last share of the arrivals."""
RISING_SHARE = 0.7
"""Still rising: the end's backlog is at least this share of the largest."""
DRAIN_SHARE = 0.05
"""Not drained: what waits at the end would take this share of the arrivals' span, were no more to come."""
CONFIDENCE_95 = 1.96
BATCHES = 20
NEVER_BEGUN = (Status.TIMED_OUT, Status.QUEUE_FULL_REQUESTS, Status.QUEUE_FULL_TOKENS)


@dataclass(frozen=True)
class Verdict:
    """`word`, and the numbers behind it."""

    word: str
    peak_waiting_requests: float
    peak_at_s: float
    """Since the first arrival."""
    rise_deviations: float
    """Of the largest rise: requests over √ of the arrivals meanwhile."""
    end_waiting_requests: float
    """Mean over the last 5 % of the arrivals."""
    end_deviations: float
    growth_requests_per_s: float
    """Trend of the backlog over the second half of the arrivals."""
    growth_low_requests_per_s: float
    """Its 95 % interval, from the growth inside batches of arrivals."""
    growth_high_requests_per_s: float
    drain_s: float
    """From the last arrival to the last end."""


def verdict_of(result: ReplayResult, parent: NDArray[np.int32] | None = None) -> Verdict:
    """Verdict on `result`; a replay in which nothing waited is stable.

    With `parent` (of TraceColumns) what comes after the last arrival that no other request caused is left out: sessions
    whose turns wait for their answers throttle themselves, and drain whatever the rate was.
    """
    arrived_s, waiting = backlog(result)
    if parent is not None and len(parent):
        seen = arrived_s <= np.nanmax(result.arrived_s[parent < 0])
        arrived_s, waiting = arrived_s[seen], waiting[seen]
    count = len(arrived_s)
    if count == 0:
        return Verdict(STABLE, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    peak = int(np.argmax(waiting))
    rise = _rise_deviations(waiting, peak)
    last = max(1, round(LAST_SHARE * count))
    end = float(waiting[-last:].mean())
    end_deviations = end / math.sqrt(count)
    growth, low, high = _growth(arrived_s, waiting)
    is_rising = end >= RISING_SHARE * waiting[peak] and growth > 0
    is_rising |= _drain_share(waiting, end) >= DRAIN_SHARE
    if end >= LEAST_WAITING and end_deviations >= TREND_DEVIATIONS and is_rising:
        word = OVERLOADED
    elif waiting[peak] >= LEAST_WAITING and rise >= BURST_DEVIATIONS:
        word = BACKLOGGED
    else:
        word = STABLE
    begin_s = float(np.nanmin(result.arrived_s))
    return Verdict(
        word,
        float(waiting[peak]),
        float(arrived_s[peak] - begin_s),
        rise,
        end,
        end_deviations,
        growth,
        low,
        high,
        max(0.0, float(result.makespan_s - (arrived_s[-1] - begin_s))),
    )


def backlog(result: ReplayResult) -> tuple[Reals, Reals]:
    """(arrivals in order, requests waiting just after each): refused ones that no engine could serve left out."""
    has_begun = np.isfinite(result.queue_s)
    counts = has_begun | np.isin(result.status, NEVER_BEGUN) | (result.status == Status.IN_FLIGHT)
    arrived_s = np.sort(result.arrived_s[counts & np.isfinite(result.arrived_s)])
    begun_s = np.sort((result.arrived_s + result.queue_s)[has_begun])
    waiting = np.arange(1.0, len(arrived_s) + 1) - np.searchsorted(begun_s, arrived_s, side="right")
    return arrived_s, waiting


def _rise_deviations(waiting: Reals, peak: int) -> float:
    """Deviations of the rise to the peak, from where the backlog was last below a tenth of it."""
    low = np.flatnonzero(waiting[: peak + 1] <= waiting[peak] / 10)
    start = int(low[-1]) if len(low) else -1
    return float(waiting[peak]) / math.sqrt(max(peak - start, 1))


def _drain_share(waiting: Reals, end: float) -> float:
    """Time to serve the end's backlog at the pace of the second half, as a share of the arrivals' span."""
    half = len(waiting) // 2
    begun = (len(waiting) - half) - (waiting[-1] - waiting[half])
    return end / max(2 * float(begun), 1.0)


def _growth(arrived_s: Reals, waiting: Reals) -> tuple[float, float, float]:
    """Growth of the backlog per second over the second half of the arrivals, and its 95 % interval."""
    half = len(arrived_s) // 2
    times, held = arrived_s[half:], waiting[half:]
    marks = np.linspace(0, len(times) - 1, min(BATCHES, len(times) - 1) + 1).round().astype(np.int64)
    spans, rises = np.diff(times[marks]), np.diff(held[marks])
    total_s = float(spans.sum())
    if total_s <= 0:
        return 0.0, 0.0, 0.0
    growth = float(rises.sum()) / total_s
    off = rises - growth * spans
    half_width = CONFIDENCE_95 * math.sqrt(float((off**2).sum()) * len(off) / max(len(off) - 1, 1)) / total_s
    return growth, growth - half_width, growth + half_width
