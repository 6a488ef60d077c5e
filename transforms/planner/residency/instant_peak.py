"""Largest instantaneous residency inside a span: a sort over its own events, so meant for one hour, not for a week."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.occupancy import decode_stretches, prefill_stretches
from transforms.planner.residency.sweep import MICROS
from transforms.planner.residency.timeline import joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.occupancy import Stretches
    from transforms.planner.residency.timeline import AnyTimeline
    from transforms.planner.sizing.replica import Replica

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]


def instant_max_bytes(timeline: AnyTimeline, replica: Replica, start_us: int, end_us: int) -> float:
    """Largest block residency in [start_us, end_us), bytes; at equal instants ends come before starts."""
    near = (part.at((part.prefill_us < end_us) & (part.end_us > start_us)) for part in timeline.parts())
    inside = joined(near, timeline.at(slice(0, 0)))
    phases = (prefill_stretches(inside, replica), decode_stretches(inside, replica))
    events = [event for phase in phases for event in _events(phase, start_us, end_us)]
    at_us, step, slope, is_start = (np.concatenate(column) for column in zip(*events, strict=True))
    order = np.lexsort((is_start, at_us))
    at_s, step, slope = at_us[order] / MICROS, step[order], slope[order]
    grown = np.cumsum(slope)[:-1] * np.diff(at_s)
    before = np.concatenate(([0.0], np.cumsum(step[:-1] + grown))) if len(at_s) else np.zeros(0)
    return float(max(before.max(initial=0.0), (before + step).max(initial=0.0)))


def _events(phase: Stretches, low_us: int, high_us: int) -> list[tuple[Wholes, Reals, Reals, Wholes]]:
    """Starts and ends of the stretches that reach into the span, cut to it: instant, step, slope, 1 for a start."""
    taken = (phase.start_us < high_us) & (phase.end_us > low_us) & (phase.end_us > phase.start_us)
    start, end = phase.start_us[taken], phase.end_us[taken]
    first, last = phase.from_block_bytes[taken], phase.to_block_bytes[taken]
    slope = (last - first) / ((end - start) / MICROS)
    begin, finish = np.maximum(start, low_us), np.minimum(end, high_us)
    value = first + slope * ((begin - start) / MICROS)
    final = first + slope * ((finish - start) / MICROS)
    ones = np.ones(len(start), dtype=np.int64)
    return [(begin, value, slope, ones), (finish, -final, -slope, 0 * ones)]
