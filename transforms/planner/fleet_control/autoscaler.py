"""How many replicas an autoscaler asks for, from what it has seen so far."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Autoscaling:
    """Rules of an autoscaler; the defaults are planner.md §5's."""

    max_replicas: int
    min_replicas: int = 1
    out_ratio: float = 0.7
    """Scale out where KV use is forecast above this share of the replicas at hand."""
    in_ratio: float = 0.3
    """Scale in where KV use has been below this share for `in_after_s`."""
    forecast_s: float = 600.0
    in_after_s: float = 1800.0
    backlog_s: float = 300.0
    """Scale out where what waits is more than this many seconds of a replica's sustainable work."""
    start_up_s: float = 120.0
    """From the order to the first request a replica takes; paid for."""
    tick_s: float = 15.0
    """Seconds between two looks at the fleet."""


@dataclass(frozen=True)
class Seen:
    """The fleet at one moment."""

    at_s: float
    used_replicas: float
    """KV in use, in pools of one replica."""
    backlog_s: float
    """Seconds of one replica's sustainable work that wait."""
    on_replicas: int
    """That take arrivals, or have been ordered."""


class Autoscaler:
    """Forecasts by a straight line through the last `forecast_s` of KV use; keeps nothing but what it was shown."""

    def __init__(self, rules: Autoscaling) -> None:
        self.rules = rules
        self.history: deque[tuple[float, float]] = deque()
        self.low_since_s: float | None = None

    def wanted(self, seen: Seen) -> int:
        """Replicas wanted from now on: as many as the forecast needs, one more for a backlog, one fewer at rest."""
        rules = self.rules
        self.history.append((seen.at_s, seen.used_replicas))
        while self.history[0][0] < seen.at_s - rules.forecast_s:
            self.history.popleft()
        needed = math.ceil(self.forecast() / rules.out_ratio - 1e-9)
        if seen.backlog_s > rules.backlog_s:
            needed = max(needed, seen.on_replicas + 1)
        if needed > seen.on_replicas or seen.used_replicas >= rules.in_ratio * seen.on_replicas:
            self.low_since_s = None
            return max(min(needed, rules.max_replicas), seen.on_replicas)
        if self.low_since_s is None:
            self.low_since_s = seen.at_s
        if seen.at_s - self.low_since_s < rules.in_after_s or seen.on_replicas <= rules.min_replicas:
            return seen.on_replicas
        self.low_since_s = seen.at_s
        return max(seen.on_replicas - 1, needed)

    def forecast(self) -> float:
        """Largest KV use expected in the next `forecast_s`, in pools of one replica.

        The line goes no further ahead than what was seen reaches back: two looks of a minute are no trend of ten.
        """
        count, (now_s, now) = len(self.history), self.history[-1]
        if count < 3:  # noqa: PLR2004 - two points are no trend
            return now
        mean_s = sum(at_s for at_s, _used in self.history) / count
        mean = sum(used for _at_s, used in self.history) / count
        spread = sum((at_s - mean_s) ** 2 for at_s, _used in self.history)
        slope = sum((at_s - mean_s) * (used - mean) for at_s, used in self.history) / spread
        ahead_s = min(self.rules.forecast_s, now_s - self.history[0][0])
        return max(now, mean + slope * (now_s + ahead_s - mean_s))
