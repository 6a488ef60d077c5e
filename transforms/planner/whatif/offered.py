"""The traffic that today's fleet and every scenario are asked with: one deployment's week, as rows and as a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.replay.rate_scaling import copies_of, scaled
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.whatif.context_limit import NONE, Turns
from transforms.workload import ATTEMPT_COLUMNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace

OFFERED_COLUMNS = (
    *ATTEMPT_COLUMNS, "source", "attempt", "finish_reason", "tool_calls", "tool_results", "logged_tool_wait_s",
    "was_refused",
)  # fmt: skip
"""Columns of the rows: a Workload's, what tells tool waits from think times, and whether the log has it as refused."""


@dataclass(frozen=True, eq=False)
class Named:
    """Whose traffic it is."""

    deployment_id: str
    week: str
    left_out_requests: int
    """Attempts of the week without a prompt length."""


@dataclass(frozen=True, eq=False)
class Offered(Named):
    """Attempts of one deployment and week in the order of arrival, with what the replay and the limits read of them."""

    rows: pl.DataFrame
    """OFFERED_COLUMNS; attempts of before the week that still run in it included."""
    replayed: NDArray[np.int64]
    """Rows of the trace, in its order: those of the week with a known prompt."""
    trace: ReplayTrace
    turns: Turns
    """One element a request: its last attempt."""
    request: NDArray[np.int64]
    """For each row of the trace the number of its request in `turns`."""


def offered(rows: pl.DataFrame, deployment_id: str, week: str, seed: int) -> Offered:
    """Traffic of `rows` (OFFERED_COLUMNS); InputError where none of them can be replayed.

    Unknown output lengths are drawn once, seeded, so that today and every scenario are asked with the same.
    """
    rows = rows.with_columns(operation=pl.lit("chat"), served_by=pl.lit("backend"))
    is_of_week = (rows["week"] == week).to_numpy()
    is_known = (rows["prompt_tokens"].fill_null(0) >= 1).to_numpy()
    replayed = np.flatnonzero(is_of_week & is_known)
    taken = rows[replayed]
    trace = replay_trace(taken, f"deployment '{deployment_id}', week {week}", seed)
    return _offered(rows, replayed, trace, Named(deployment_id, week, int((is_of_week & ~is_known).sum())))


def _offered(rows: pl.DataFrame, replayed: NDArray[np.int64], trace: ReplayTrace, named: Named) -> Offered:
    taken = rows[replayed]
    last, request = _requests(taken)
    turns = _turns(taken, trace.columns.output_tokens).at(last)
    about = (named.deployment_id, named.week, named.left_out_requests)
    return Offered(*about, rows=rows, replayed=replayed, trace=trace, turns=turns, request=request)


def scaled_traffic(traffic: Offered, factor: float, mode: str, seed: int) -> Offered:
    """`traffic` with `factor` times the arrivals of the week, as `rate_scaling.scaled` has them; waits stay.

    Copies are sessions and requests of their own. Attempts without a prompt length are left out.
    """
    if factor == 1:
        return traffic
    of_week, columns = traffic.rows[traffic.replayed], traffic.trace.columns
    trace = scaled(traffic.trace, factor, mode, seed)
    if mode == "compress":
        chosen, copy = np.arange(len(of_week)), np.zeros(len(of_week), dtype=np.int64)
    else:
        chosen, copy, _arrived_s = copies_of(columns.arrived_s, traffic.trace.unit, factor, seed)
    marks = pl.Series(["", *(f"~{number}" for number in range(1, int(copy.max(initial=0)) + 1))]).gather(copy)
    arrived_us = int(of_week["arrived_at"].dt.epoch("us")[0]) + np.rint(trace.columns.arrived_s * 1e6)
    moved = of_week[chosen].with_columns(
        pl.Series("arrived_at", arrived_us.astype(np.int64)).cast(of_week["arrived_at"].dtype),
        request_id=pl.col("request_id") + marks,
        session_id=pl.col("session_id") + marks,
    )
    before = traffic.rows.filter(pl.col("week") != traffic.week)
    replayed = np.arange(len(before), len(before) + len(moved))
    return _offered(pl.concat([before, moved]), replayed, trace, traffic)


def _requests(rows: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row of the last attempt of each request, in their order; number of each row's request among them)."""
    numbers = rows.select(pl.struct("source", "request_id").rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    lasts = np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64)
    np.maximum.at(lasts, numbers, np.arange(len(rows)))
    last = np.sort(lasts)
    place = np.full(len(rows), -1, dtype=np.int64)
    place[last] = np.arange(len(last))
    return last, place[lasts[numbers]]


def _turns(rows: pl.DataFrame, outputs: NDArray[np.int32]) -> Turns:
    has_session = pl.col("session_id").is_not_null()
    numbered = rows.select(
        session=pl.when(has_session).then(pl.col("session_id").rank("dense").cast(pl.Int64) - 1),
        agent=pl.when(has_session & pl.col("agent_id").is_not_null()).then(
            pl.struct("session_id", "agent_id").rank("dense").cast(pl.Int64)
        ),
    )
    return Turns(
        prompt_tokens=rows["prompt_tokens"].to_numpy().astype(np.int64),
        output_tokens=outputs.astype(np.int64),
        requested_tokens=rows["requested_output_tokens"].fill_null(NONE).to_numpy().astype(np.int64),
        session=numbered["session"].fill_null(NONE).to_numpy().astype(np.int64),
        agent=numbered["agent"].fill_null(0).to_numpy().astype(np.int64),
        was_refused=rows["was_refused"].fill_null(value=False).to_numpy(),
        was_answered=~rows["is_failed"].fill_null(value=False).to_numpy(),
    )
