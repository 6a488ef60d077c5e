"""The curve of a sweep: what moves along it, its knee, and where it first cuts a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

MEASURES = (
    "served_output_ratio", "attainment_ratio", "ttft_p95_s", "tpot_p95_s", "needed_gpus", "kv_time_byte_s",
)  # fmt: skip
"""What a curve is drawn of: the first of these that moves by MOVED_RATIO of its largest value."""
MOVED_RATIO = 0.01
LEAST_POINTS = 3
STRAIGHT = 0.05
"""A curve that leaves its chord by less than this share of the square has no knee."""
ROUGH = 2.0
"""Nor has one that goes up and down by more than so many times its span: that is chance."""


def mark_curves(rows: Sequence[dict[str, Any]]) -> None:
    """Set `curve_measure`, `is_knee` and `is_first_cut` in the rows of sweeps, deployment by deployment and setting."""
    for key in dict.fromkeys((row["deployment_id"], row["swept_setting"]) for row in rows if row["swept_setting"]):
        points = [row for row in rows if (row["deployment_id"], row["swept_setting"]) == key]
        points.sort(key=lambda row: row["swept_value"])
        measure = moving_measure(points)
        place = None if measure is None else knee([p["swept_value"] for p in points], [p.get(measure) for p in points])
        first = first_cut([point.get("sessions_cut") for point in points])
        for number, point in enumerate(points):
            point["curve_measure"] = measure
            point["is_knee"] = number == place
            point["is_first_cut"] = number == first


def moving_measure(points: Sequence[dict[str, Any]]) -> str | None:
    """The measure that the curve is about; None where nothing moves."""
    for name in MEASURES:
        values = [point[name] for point in points if point.get(name) is not None]
        if len(values) >= LEAST_POINTS and max(values) - min(values) > MOVED_RATIO * max(map(abs, values)):
            return name
    return None


def knee(positions: Sequence[float], values: Sequence[float | None]) -> int | None:
    """Number of the point farthest from the chord between the ends; None for a straight or a rough line, or of two.

    Positions and values are scaled to 0 … 1, positions on a log scale where they rise by factors (the rule of Satopää
    et al., "Finding a 'Kneedle' in a Haystack", 2011).
    """
    known = [number for number, value in enumerate(values) if value is not None]
    if len(known) < LEAST_POINTS:
        return None
    at = np.array([positions[number] for number in known], dtype=np.float64)
    height = np.array([values[number] for number in known], dtype=np.float64)
    if rises_by_factors(at):
        at = np.log(at)
    across, up = (at - at[0]) / (at[-1] - at[0]), height - height[0]
    span = float(np.ptp(height))
    if span == 0 or float(np.abs(np.diff(height)).sum()) > ROUGH * span * (1 + 1e-9):
        return None
    off = np.abs(up / span - across * up[-1] / span)
    farthest = int(off.argmax())
    return known[farthest] if off[farthest] >= STRAIGHT else None


def rises_by_factors(at: Reals) -> bool:
    """Whether the factors between rising positions differ less than the steps between them."""
    if at[0] <= 0:
        return False
    factors, steps = at[1:] / at[:-1], np.diff(at)
    return bool(factors.max() / factors.min() < steps.max() / steps.min())


def first_cut(sessions_cut: Sequence[int | None]) -> int | None:
    """Number of the point at which, coming from the end where fewest are cut, sessions are first cut.

    None where every point cuts as many: the setting has nothing to do with it.
    """
    counts = [0 if count is None else count for count in sessions_cut]
    if not counts or min(counts) == max(counts):
        return None
    order = range(len(counts) - 1, -1, -1) if counts[0] > counts[-1] else range(len(counts))
    return next(number for number in order if counts[number] > 0)
