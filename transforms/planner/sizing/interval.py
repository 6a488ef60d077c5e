"""How sure a count is, from how much the days of the week differ: a seeded bootstrap of whole days."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from transforms.planner.sizing.tail import Tail

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

FEWEST_DAYS = 5
DRAWS = 400
LOW_RATIO, HIGH_RATIO = 0.05, 0.95

NEAR_RATIO = 0.75
"""Days whose peak is at least this share of the week's largest say how much busy days differ: a quiet weekend is no
doubt about Tuesday."""
FEWEST_NEAR = 3

NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal: an error with that median has this many times its deviation."""

KERNEL_STEPS = np.linspace(-3.0, 3.0, 25)
"""The kernel is drawn in quarters of its width, so that a demand need be known for few sizes of a day's traffic."""


@dataclass(frozen=True, eq=False)
class DayDemands:
    """What each day asks for, in replicas and not rounded, one element a day; 0 on days without traffic."""

    kv: Reals
    compute: Reals
    latency: Callable[[int, float], int]
    """Whole replicas that the latency objective takes on a day whose traffic is this many times as dense."""
    tails: tuple[Tail | None, ...] = ()
    """Tail of the busiest hour of each day; none: its peak is taken as certain."""
    step_error_ratio: float = 0.0
    """Median error of the step times the demands are computed with."""
    kv_pace_factor: float = math.inf
    """Times as slow as computed at which steps no longer set the pace of decode, but the promise does (KV is then
    held no longer); below 1 where the promise already does."""


def day_interval(days: DayDemands, count: Callable[[list[float]], int], seed: int) -> tuple[int, int] | None:
    """Low and high end (5 % … 95 %) of `count` over weeks redrawn from whole days; None with fewer than 5 days.

    A redrawn week takes as many days as were seen, each day's traffic made denser or thinner by a log-normal kernel,
    because the largest of the same few days could never exceed the largest seen. A day keeps its demands together, and
    all of them share the kernel's draw, that of its busiest hour's tail, and one draw a week of how wrong the step
    times are. The kernel's width is that between the KV peaks of the busy days: these do not depend on how patient the
    time to first token is, so patience can only lower both ends. How often the interval holds the true need is measured
    in tests/property/test_interval_coverage.py.
    """
    seen = np.flatnonzero(days.kv > 0)
    if len(seen) < FEWEST_DAYS:
        return None
    random = np.random.default_rng(seed)
    tails = _tail_factors(days.tails, seen, random)
    width = _width(days.kv[seen], float(np.log(tails).var(axis=0).mean()))
    error = days.step_error_ratio / NORMAL_MEDIAN
    grid = np.exp(math.hypot(width, error) * KERNEL_STEPS)
    latency = _latency_table(days.latency, seen, grid)
    shape = (DRAWS, len(seen))
    picked = random.integers(0, len(seen), size=shape)
    steps = np.abs(random.normal(size=shape)[..., None] - KERNEL_STEPS).argmin(axis=-1)
    slower = np.exp(error * random.normal(size=DRAWS))[:, None]
    density = np.exp(width * KERNEL_STEPS)[steps] * tails[np.arange(DRAWS)[:, None], picked]
    kv = (days.kv[seen][picked] * density * _held_longer(slower, days.kv_pace_factor)).max(axis=1)
    compute = (days.compute[seen][picked] * density * slower).max(axis=1)
    nearest = np.abs(np.log(density * slower)[..., None] - np.log(grid)).argmin(axis=-1)
    drawn = np.stack([kv, compute, latency[picked, nearest].max(axis=1)], axis=1)
    counts = [count(row.tolist()) for row in drawn]
    low, high = np.quantile(counts, (LOW_RATIO, HIGH_RATIO), method="inverted_cdf")
    return int(low), int(high)


def _held_longer(slower: Reals, pace_factor: float) -> Reals:
    """Times as long as computed that KV is held in decode where steps are `slower` times as slow."""
    held: Reals = np.minimum(slower, pace_factor) / min(1.0, pace_factor)
    return held


def _tail_factors(tails: tuple[Tail | None, ...], seen: Wholes, random: np.random.Generator) -> Reals:
    """Factor of each draw (rows) on the peak of each seen day (columns)."""
    columns = []
    for day in seen:
        tail = tails[day] if tails else None
        columns.append(np.ones(DRAWS) if tail is None else tail.peak_factors(DRAWS, random))
    return np.stack(columns, axis=1)


def _width(peaks: Reals, tail_variance: float) -> float:
    """Standard deviation of the kernel, of the logarithm of a day's traffic: Silverman's bandwidth of the busy days.

    What chance inside an hour adds to the spread of the peaks (`tail_variance`) is drawn apart, and left out here.
    """
    near = peaks[peaks >= NEAR_RATIO * peaks.max()]
    variance = float(np.log(near if len(near) >= FEWEST_NEAR else peaks).var(ddof=1))
    spread = math.sqrt(max(variance - tail_variance, 0.0))
    return 1.06 * spread / math.pow(len(peaks), 0.2)  # Silverman 1986, eq. 3.28: 1.06 σ n^(-1/5)


def _latency_table(latency: Callable[[int, float], int], seen: Wholes, factors: Reals) -> Reals:
    """Replicas for each seen day (rows) and each factor (columns); one look-up where all factors are the same."""
    different = factors if factors[0] < factors[-1] else factors[:1]
    table = np.array([[latency(int(day), float(factor)) for factor in different] for day in seen], dtype=np.float64)
    return np.broadcast_to(table, (len(seen), len(factors)))
