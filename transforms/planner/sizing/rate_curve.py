"""Share of the requests in objective over the rate that a fleet is sent: the hardest window, thinned out and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.rate_scaling import scaled_if_any
from transforms.planner.replay.replay_types import Status
from transforms.planner.replay.sustainable_rate import kept_both

if TYPE_CHECKING:
    from transforms.planner.sizing.latency_by_replay import LatencyReplay

FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Times the traffic of the hardest window that are replayed; few, for each is a replay of it and of its warm-up."""


def rate_curve(found: LatencyReplay, now_replicas: int, needed_replicas: int, seed: int) -> list[dict[str, Any]]:
    """Rows of plan_rate_curve: today's fleet and the needed one (where it is another), each at every factor.

    Requests that arrive in the window count, as in the search for the latency demand; its warm-up does not.
    """
    return [
        {
            "fleet_replicas": replicas,
            "rate_factor": factor,
            "is_today": replicas == now_replicas,
            "is_needed": replicas == needed_replicas,
            "rate_requests_per_s": point[0] / found.replays.week.replica.window_s,
            "attainment_ratio": point[1],
        }
        for replicas in sorted({now_replicas, needed_replicas} - {0})
        for factor in FACTORS
        if (point := at_factor(found, replicas, factor, seed)) is not None
    ]


def at_factor(found: LatencyReplay, replicas: int, factor: float, seed: int) -> tuple[int, float] | None:
    """Requests of the hardest window at `factor` times its traffic, and their share in objective; None without any.

    At its own traffic it is the replay that the latency demand was judged by.
    """
    week = found.replays.week
    if factor == 1.0:
        result, windows = found.replays.result(found.replays.stretch_of(found.window), replicas)
        is_inside = windows == found.window
    else:
        part, taken = found.hardest
        again = scaled_if_any(part, factor, seed)
        if again is None:
            return None
        result = replay(again.columns, week.settings.on_replicas(replicas), week.costs)
        start_s = week.arrived_s[taken[0]] - part.columns.arrived_s[0]
        is_inside = np.floor((again.columns.arrived_s + start_s) / week.replica.window_s) == found.window
    is_counted = is_inside & (result.status != Status.NOT_SENT)
    if not is_counted.any():
        return None
    is_kept = kept_both(result, week.replica.ttft_p95_s, week.replica.tpot_p95_s)
    return int(is_inside.sum()), float(is_kept[is_counted].mean())
