"""The same traffic at another rate: seeded copies of whole sessions, whole sessions left out, or time compressed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import TraceColumns

SHIFT_S = 15 * 60.0
"""A copy of a session comes up to so much earlier or later (planner.md §4)."""


def scaled(trace: ReplayTrace, factor: float, mode: str = "sessions", seed: int = 0) -> ReplayTrace:
    """`trace` with `factor` times the arrivals; tool waits and think times stay.

    Above 1, each session is there ⌊factor⌋ times or once more, copies shifted within ±15 minutes around the ends of the
    trace; below 1, each stays with probability `factor`. Mode `compress`: arrivals factor times as close.
    """
    if factor == 1:
        return trace
    if mode == "compress":
        columns = replace(trace.columns, arrived_s=trace.columns.arrived_s / factor)
        return replace(trace, columns=columns)
    rows, copy, arrived_s = copies_of(trace.columns.arrived_s, trace.unit, factor, seed)
    return _in_order(trace, rows, copy, arrived_s)


def scaled_if_any(trace: ReplayTrace, factor: float, seed: int) -> ReplayTrace | None:
    """`scaled` by whole sessions; None where none is left."""
    try:
        return scaled(trace, factor, seed=seed)
    except InputError:
        return None


def rotated(trace: ReplayTrace, start_s: float) -> ReplayTrace:
    """`trace` begun `start_s` after its first arrival: sessions that began before come, whole, after all others.

    Between its last arrival and its first one there is then the mean gap.
    """
    arrived_s, count = trace.columns.arrived_s, trace.columns.rows
    whole_s = float(arrived_s[-1]) * count / max(count - 1, 1)
    units, numbers = np.unique(trace.unit, return_inverse=True)
    first_s = _first_s(arrived_s, numbers, len(units))[numbers]
    moved_s = arrived_s + np.where(first_s < start_s, whole_s, 0.0) - start_s
    rows = np.lexsort((np.arange(count), moved_s))
    return _in_order(trace, rows, np.zeros(count, dtype=np.int64), moved_s[rows])


def copies_of(
    arrived_s: NDArray[np.float64], unit: NDArray[np.int64], factor: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(row, number of its copy, arrival) of each request at `factor` times the sessions `unit`, in order of arrival.

    InputError where no session is left.
    """
    random = np.random.default_rng(seed)
    units, numbers = np.unique(unit, return_inverse=True)
    copies = np.floor(factor).astype(np.int64) + (random.random(len(units)) < factor % 1)
    rows, copy = _repeated(copies[numbers])
    if len(rows) == 0:
        raise InputError(f"rate_scale = {factor}: no session of {len(units):,} is left; take a larger one")
    span_s = float(arrived_s[-1] - arrived_s[0])
    shifts_s = random.uniform(-1, 1, (len(units), int(copies.max()))) * min(SHIFT_S, span_s / 2)
    shifts_s[:, 0] = 0.0
    first_s = _first_s(arrived_s, numbers, len(units))
    moved_s = (first_s[numbers[rows]] + shifts_s[numbers[rows], copy]) % max(span_s, 1e-9)
    moved_s = np.where(copy == 0, first_s[numbers[rows]], moved_s)
    arrived_s = arrived_s[rows] - first_s[numbers[rows]] + moved_s
    order = np.lexsort((rows, arrived_s))
    return rows[order], copy[order], arrived_s[order]


def _repeated(copies: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, number of its copy) of each row as often as `copies` says."""
    rows = np.repeat(np.arange(len(copies)), copies)
    first = np.repeat(np.cumsum(copies) - copies, copies)
    return rows, np.arange(len(rows)) - first


def _first_s(arrived_s: NDArray[np.float64], numbers: NDArray[np.int64], units: int) -> NDArray[np.float64]:
    first = np.full(units, np.inf)
    np.minimum.at(first, numbers, arrived_s)
    return first


def _in_order(
    trace: ReplayTrace, rows: NDArray[np.int64], copy: NDArray[np.int64], arrived_s: NDArray[np.float64]
) -> ReplayTrace:
    """The chosen rows, causes and sessions those of the same copy."""
    each = int(copy.max()) + 1
    columns = taken(trace.columns, rows)
    if len(columns.parent):
        place = np.full((trace.columns.rows, each), -1, dtype=np.int32)
        place[rows, copy] = np.arange(len(rows), dtype=np.int32)
        parent = np.where(columns.parent >= 0, place[np.maximum(columns.parent, 0), copy], -1)
        columns = replace(columns, parent=parent.astype(np.int32))
    if len(columns.block_ids):
        ids = _own_blocks(trace, columns.block_ids, np.repeat(copy, np.diff(columns.block_offsets)))
        columns = replace(columns, block_ids=ids)
    session = np.unique(columns.session.astype(np.int64) * each + copy, return_inverse=True)[1].astype(np.int32)
    marks = pl.Series(["", *(f"~{number}" for number in range(1, each))]).gather(copy)
    marked = trace.request_id.gather(rows) + marks
    columns = replace(columns, arrived_s=arrived_s, session=session)
    unit = trace.unit[rows] * each + copy
    return replace(trace, columns=columns, request_id=marked, unit=unit, logged=trace.logged.at(rows))


def _own_blocks(trace: ReplayTrace, ids: NDArray[np.int32], copy: NDArray[np.int64]) -> NDArray[np.int32]:
    """Prefix blocks as numbers 0 …; those that only one session has are another session's in each of its copies."""
    count = int(trace.columns.block_ids.max()) + 1
    owner = np.repeat(trace.unit, np.diff(trace.columns.block_offsets))
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(low, trace.columns.block_ids, owner)
    np.maximum.at(high, trace.columns.block_ids, owner)
    named = ids + np.where((low == high)[ids], copy * count, 0)
    return np.unique(named, return_inverse=True)[1].astype(np.int32)


def taken(columns: TraceColumns, rows: NDArray[np.int64]) -> TraceColumns:
    """Columns of the chosen rows; absent ones stay absent, prefix blocks are those of the original."""
    plain = {
        name: value[rows]
        for name in (f.name for f in fields(columns))
        if name not in ("block_offsets", "block_ids") and len(value := getattr(columns, name))
    }
    if len(columns.block_offsets):
        counts = np.diff(columns.block_offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        plain["block_ids"] = columns.block_ids[np.repeat(columns.block_offsets[rows], counts) + within]
        plain["block_offsets"] = offsets
    return replace(columns, **plain)
