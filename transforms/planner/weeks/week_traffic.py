"""Two weeks of one deployment as rows whose factors can be swapped: each row as its own week has it, and as the other.

A row keeps its place in the distribution: of its kind (model and tenant) the n-th longest prompt becomes the n-th
longest of the other week. So a week swapped for itself is itself, and what goes together stays together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.residency.timeline import accepted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.attempts import Attempts
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

MOST_ROWS = 100_000
"""Rows looked at of a week: of more, every n-th, each standing for n."""

LEAST_ROWS = 50
"""Kinds of fewer rows in both weeks are taken together."""


@dataclass(frozen=True, eq=False)
class Marks:
    """What two weeks differ in, one element a row: tokens of prompt and output, and share of the prompt cached."""

    prompt: Reals
    output: Reals
    cached_ratio: Reals


@dataclass(frozen=True, eq=False)
class Waits:
    """Tool waits: context held through each and how long, as the own week and as the other has them."""

    kind: Wholes
    tokens: tuple[Reals, Reals]
    """Own, other's."""
    wait_s: tuple[Reals, Reals]


@dataclass(frozen=True, eq=False)
class WeekTraffic:
    """Accepted requests of one week, in order of arrival."""

    arrived_us: Wholes
    kind: Wholes
    """Number of the (model, tenant) in both weeks' list."""
    own: Marks
    other: Marks
    waits: Waits
    requests: float
    """Of the week: rows stand for as many each."""
    waits_requests: float


def week_pair(earlier: Workload, later: Workload, replica: Replica) -> tuple[WeekTraffic, WeekTraffic]:
    """The two weeks with each other's marks beside their own."""
    taken = [_taken(week, replica) for week in (earlier, later)]
    gaps = [_every(len(week.tool_waits.end_us)) for week in (earlier, later)]
    kinds, gap_kinds = _kinds([earlier, later], taken, gaps)
    marks = [_marks(week, rows) for week, rows in zip((earlier, later), taken, strict=True)]
    held = [week.tool_waits.tokens[rows] for week, rows in zip((earlier, later), gaps, strict=True)]
    spans = [
        (week.tool_waits.end_us - week.tool_waits.start_us)[rows] / 1e6
        for week, rows in zip((earlier, later), gaps, strict=True)
    ]
    made = []
    for here, there, week in ((0, 1, earlier), (1, 0, later)):
        other = Marks(
            *(
                as_other(getattr(marks[here], name), kinds[here], getattr(marks[there], name), kinds[there])
                for name in vars(marks[here])
            )
        )
        waits = Waits(
            gap_kinds[here],
            (held[here], as_other(held[here], gap_kinds[here], held[there], gap_kinds[there])),
            (spans[here], as_other(spans[here], gap_kinds[here], spans[there], gap_kinds[there])),
        )
        requests = float((accepted(week, replica) & ~week.is_carried).sum())
        arrived = week.arrived_us[taken[here]]
        every = float(len(week.tool_waits.end_us))
        made.append(WeekTraffic(arrived, kinds[here], marks[here], other, waits, requests, every))
    return made[0], made[1]


def marks_of(attempts: Attempts) -> Marks:
    """Marks of `attempts`."""
    prompt = attempts.prompt_tokens
    return Marks(prompt, attempts.output_tokens, attempts.cached_tokens / np.maximum(prompt, 1.0))


def as_other(values: Reals, kinds: Wholes, others: Reals, other_kinds: Wholes) -> Reals:
    """`values` moved to the same places in the distributions of `others`, kind by kind; own where there are none."""
    moved = values.copy()
    for kind in np.unique(kinds):
        mine = np.flatnonzero(kinds == kind)
        theirs = np.sort(others[other_kinds == kind])
        if len(theirs):
            places = np.round((np.arange(len(mine)) + 0.5) / len(mine) * len(theirs) - 0.5, 9)
            moved[mine[np.argsort(values[mine], kind="stable")]] = np.interp(places, np.arange(len(theirs)), theirs)
    return moved


def _taken(week: Workload, replica: Replica) -> Wholes:
    rows = np.flatnonzero(accepted(week, replica) & ~week.is_carried)
    return rows[_every(len(rows))]


def _every(count: int) -> Wholes:
    """Places of at most MOST_ROWS of `count` rows, evenly spread."""
    return np.arange(0, count, max(1, -(-count // MOST_ROWS)), dtype=np.int64)


def _marks(week: Workload, rows: Wholes) -> Marks:
    return marks_of(week.at(rows))


def _kinds(weeks: list[Workload], taken: list[Wholes], gaps: list[Wholes]) -> tuple[list[Wholes], list[Wholes]]:
    """Number of the kind of each request and of each tool wait, by week; 0 for all that are rare."""
    frames = [week.names(rows, "model", "tenant") for week, rows in zip(weeks, taken, strict=True)]
    counts = pl.concat(frame.group_by("model", "tenant").len() for frame in frames)
    common = (
        counts.group_by("model", "tenant").agg(pl.col("len").max()).filter(pl.col("len") >= LEAST_ROWS)
        .sort("model", "tenant", nulls_last=True).select("model", "tenant").with_row_index("kind", offset=1)
    )  # fmt: skip
    waits = [week.tool_waits.labels.select("model", "tenant")[rows] for week, rows in zip(weeks, gaps, strict=True)]
    return [_numbers(frame, common) for frame in frames], [_numbers(frame, common) for frame in waits]


def _numbers(frame: pl.DataFrame, common: pl.DataFrame) -> Wholes:
    joined = frame.join(common, on=["model", "tenant"], how="left", nulls_equal=True, maintain_order="left")
    return joined["kind"].fill_null(0).to_numpy().astype(np.int64)
