"""Replicas that the latency objective takes, by replay: the smallest R such that R and R + 1 both keep it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_summary import latencies
from transforms.planner.replay.replay_types import Status
from transforms.planner.replay.slices import sliced
from transforms.planner.replay.sustainable_rate import ATTAINED_RATIO, kept_both

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult
    from transforms.planner.sizing.replay_week import ReplayWeek
    from transforms.planner.sizing.window_survey import Stretch

    Reals = NDArray[np.float64]

MOST_ENGINES = 4096
"""More engines than that are not replayed side by side."""


@dataclass(frozen=True, eq=False)
class Attained:
    """How one window did on some number of replicas."""

    window: int
    requests: int
    attained_ratio: float

    @property
    def is_kept(self) -> bool:
        """Whether 95 % of its requests kept both objectives."""
        return self.attained_ratio >= ATTAINED_RATIO


@dataclass(eq=False)
class Replays:
    """Replays of `stretches` of a week on fleets of any size, each made once; those that fail come first."""

    week: ReplayWeek
    stretches: Sequence[Stretch]
    lowest_of: dict[int, Attained] = field(default_factory=dict)
    """Number of replicas → the window with the lowest attainment; the first one found that misses, if one does."""
    _parts: dict[Stretch, tuple[ReplayTrace, NDArray[np.int64]]] = field(default_factory=dict)

    def lowest(self, replicas: int) -> Attained:
        """Window with the lowest attainment on `replicas` replicas."""
        if replicas not in self.lowest_of:
            self.lowest_of[replicas] = self._lowest(replicas)
        return self.lowest_of[replicas]

    def is_kept(self, replicas: int) -> bool:
        """Whether every window keeps the objectives with `replicas` replicas and with one more."""
        return self.lowest(replicas).is_kept and self.lowest(replicas + 1).is_kept

    def result(self, stretch: Stretch, replicas: int) -> tuple[ReplayResult, NDArray[np.int64]]:
        """Replay of one stretch, and the window each of its requests counts in (−1: none)."""
        part, rows = self.part(stretch)
        settings = self.week.settings.on_replicas(replicas)
        return replay(part.columns, settings, self.week.costs), self.week.window[rows]

    def part(self, stretch: Stretch) -> tuple[ReplayTrace, NDArray[np.int64]]:
        """Requests of `stretch` as a trace, and their rows in the week's."""
        if stretch not in self._parts:
            start_s = self.week.start_s
            self._parts[stretch] = sliced(self.week.trace, stretch.low_s - start_s, stretch.high_s - start_s)
        return self._parts[stretch]

    def stretch_of(self, window: int) -> Stretch:
        """The stretch in which `window` counts."""
        return next(stretch for stretch in self.stretches if window in stretch.windows)

    def _lowest(self, replicas: int) -> Attained:
        lowest: Attained | None = None
        for stretch in self.stretches:
            found = windows_of(self.week, stretch, *self.result(stretch, replicas))
            lowest = min([*found, *([lowest] if lowest else [])], key=lambda one: one.attained_ratio)
            if not lowest.is_kept:
                self.stretches = [stretch, *(other for other in self.stretches if other is not stretch)]
                break
        if lowest is None:
            raise ValueError("no stretch to replay")
        return lowest


def windows_of(week: ReplayWeek, stretch: Stretch, result: ReplayResult, window: NDArray[np.int64]) -> list[Attained]:
    """How each window of `stretch` that counts did; what was refused, left or failed missed."""
    is_kept = kept_both(result, week.replica.ttft_p95_s, week.replica.tpot_p95_s)
    found = []
    for number in stretch.windows:
        is_inside = (window == number) & (result.status != Status.NOT_SENT)
        requests = int(is_inside.sum())
        found.append(Attained(number, requests, float(is_kept[is_inside].sum()) / max(requests, 1)))
    return found


def fewest_replicas(replays: Replays, guess: int) -> int | None:
    """Smallest R, as a search from `guess` finds it, with which and with R + 1 every window keeps the objectives.

    R − 1 does not keep them (or R is 1). None where a fleet with a replica for every request at once does not either.
    """
    most = most_replicas(replays.week, guess)
    low, high, step = 0, guess, 1
    while not replays.is_kept(high):
        if high >= most:
            return None
        low, high, step = high, min(high + step, most), 2 * step
    step = 1
    while low == 0 and high > 1:
        lower = max(1, high - step)
        if replays.is_kept(lower):
            high, step = lower, 2 * step
        else:
            low = lower
    return _between(replays.is_kept, low, high)


def most_replicas(week: ReplayWeek, guess: int = 1) -> int:
    """Replicas with which each request of `week` has an engine to itself, as far as one can replay."""
    ranks = week.replica.ranks
    return min(max(1, MOST_ENGINES // ranks), max(guess, -(-(concurrent_requests(week) + 1) // ranks)))


def _between(is_kept: Callable[[int], bool], low: int, high: int) -> int:
    """Smallest number above `low`, which is not kept, up to `high`, which is; halving."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_kept(middle) else (middle, high)
    return high


def concurrent_requests(week: ReplayWeek) -> int:
    """Most requests at once if each is answered at SLO pace on arrival."""
    starts, ends = np.sort(week.arrived_s), np.sort(week.arrived_s + week.e2e_s)
    return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max(initial=1))


def counted_latencies(result: ReplayResult, is_counted: NDArray[np.bool_]) -> dict[str, Reals]:
    """Seconds by measure of the requests that count; infinite for those that were never answered."""
    is_sent = is_counted & (result.status != Status.NOT_SENT)
    is_answered = result.status[is_sent] == Status.COMPLETED
    return {name: np.where(is_answered, values[is_sent], math.inf) for name, values in latencies(result).items()}
