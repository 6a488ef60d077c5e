"""A stretch of a trace as a trace of its own: what arrives in it, causes outside of it left out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.rate_scaling import taken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace


def sliced(trace: ReplayTrace, low_s: float, high_s: float) -> tuple[ReplayTrace, NDArray[np.int64]]:
    """Requests of `trace` whose logged arrival lies in [low_s, high_s) of its clock, and their rows.

    Its clock starts at its first arrival. A request whose cause lies outside arrives at its logged time.
    """
    arrived_s = trace.columns.arrived_s
    rows = np.arange(np.searchsorted(arrived_s, low_s), np.searchsorted(arrived_s, high_s))
    if len(rows) == trace.columns.rows:
        return trace, rows
    columns = taken(trace.columns, rows)
    if len(rows):
        columns = replace(columns, arrived_s=columns.arrived_s - columns.arrived_s[0])
    if len(columns.parent):
        parent = np.where(columns.parent >= rows[0], columns.parent - rows[0], -1) if len(rows) else columns.parent
        columns = replace(columns, parent=parent.astype(np.int32))
    if len(columns.session):
        session = np.unique(columns.session, return_inverse=True)[1].astype(np.int32)
        columns = replace(columns, session=session)
    part = replace(
        trace,
        columns=columns,
        request_id=trace.request_id.gather(rows),
        unit=trace.unit[rows],
        logged=trace.logged.at(rows),
    )
    return part, rows
