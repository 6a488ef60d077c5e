"""What moved KV·time and GPUs from one week to the next: the change split over six factors, with what stays over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.provenance import MODELLED, weakest
from transforms.planner.residency.pace import slo_pace
from transforms.planner.sizing.demand import compute_demand, kv_demand
from transforms.planner.weeks.shapley import shapley
from transforms.planner.weeks.swapped import ALL_HOURS, FACTORS, asked_of, mixture, tool_wait_byte_s
from transforms.planner.weeks.week_traffic import week_pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.sizing.plan_replicas import Site
    from transforms.planner.weeks.swapped import Asked
    from transforms.planner.weeks.week_taken import TakenWeek
    from transforms.planner.weeks.week_traffic import WeekTraffic

    Reals = NDArray[np.float64]

NOW, BEFORE = frozenset(FACTORS), frozenset[str]()


def change_rows(earlier: TakenWeek, later: TakenWeek, site: Site) -> list[dict[str, Any]]:
    """Rows of plan_changes: the change by mover, and the residual; none where a week has no usable rows.

    KV·time is that of the requests at SLO pace and of tool waits with contexts kept; GPUs are those of the larger of
    the KV and compute demands with headroom, not rounded. Latency asks for whole replicas and is not split.
    """
    if not earlier.rows or not later.rows:
        return []
    weeks = week_pair(earlier, later)
    if not all(len(week.kind) for week in weeks):
        return []
    pace, replica = slo_pace(site.replica), site.replica
    ends = [asked_of(mixture(weeks, chosen), replica, pace, ALL_HOURS) for chosen in (BEFORE, NOW)]
    scales = [_scale(taken, end, site) for taken, end in zip((earlier, later), ends, strict=True)]
    hours = np.union1d(*(end.busiest() for end in ends))
    known: dict[frozenset[str], Asked] = {}

    def value(chosen: frozenset[str]) -> Reals:
        swapped = chosen - {"rate", "tool_waits"}
        if swapped not in known:
            known[swapped] = asked_of(mixture(weeks, swapped), replica, pace, hours)
        rate = weeks[int("rate" in chosen)].requests / weeks[int("burstiness" in chosen)].requests
        scale = scales[int("burstiness" in chosen)]
        return rate * _requests(known[swapped], site, scale) + _waits(weeks, replica.kv_token_bytes, chosen)

    parts = shapley(value, FACTORS)
    whole = [
        _requests(end, site, scale) + _waits(weeks, replica.kv_token_bytes, chosen)
        for end, scale, chosen in zip(ends, scales, (BEFORE, NOW), strict=True)
    ]
    parts["residual"] = whole[1] - whole[0] - np.sum([parts[factor] for factor in FACTORS], axis=0)
    return _rows(parts, whole, earlier.week, weakest(MODELLED, replica.step.provenance))


def _scale(taken: TakenWeek, end: Asked, site: Site) -> Reals:
    """Peaks of KV and work of a whole week, as multiples of those of the rows taken of it."""
    if taken.peaks is None:
        return np.ones(2)
    whole = np.array([taken.peaks.kv_bytes / site.replica.kv_capacity_bytes, taken.peaks.work])
    rows = np.array([end.kv_replicas.max(), end.compute_replicas.max()])
    scale: Reals = np.divide(whole, rows, out=np.ones(2), where=rows > 0)
    return scale


def _requests(asked: Asked, site: Site, scale: Reals) -> Reals:
    """KV·time of the requests, and GPUs of the larger demand, its peaks times `scale`."""
    kv, compute = np.array([asked.kv_replicas.max(), asked.compute_replicas.max()]) * scale
    demand = max(float(kv_demand(kv * site.replica.kv_capacity_bytes, site.replica, site.headroom_ratio)),
                 float(compute_demand(compute, site.headroom_ratio)))  # fmt: skip
    return np.array([asked.kv_time_byte_s, site.replica.gpus * demand])


def _waits(weeks: tuple[WeekTraffic, WeekTraffic], token_bytes: int, chosen: frozenset[str]) -> Reals:
    """KV·time of the tool waits; no GPUs, for no engine of today keeps contexts through them."""
    return np.array([tool_wait_byte_s(weeks, token_bytes, chosen), 0.0])


def _rows(parts: dict[str, Reals], whole: list[Reals], earlier: str, provenance: str) -> list[dict[str, Any]]:
    before, after = whole
    return [
        {
            "previous_week": earlier,
            "mover": mover,
            "previous_kv_time_byte_s": float(before[0]),
            "kv_time_byte_s": float(after[0]),
            "kv_time_part_byte_s": float(part[0]),
            "previous_demand_gpus": float(before[1]),
            "demand_gpus": float(after[1]),
            "demand_part_gpus": float(part[1]),
            "provenance": provenance,
        }
        for mover, part in parts.items()
    ]
