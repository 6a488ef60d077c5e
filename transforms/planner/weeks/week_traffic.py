"""Two weeks of one deployment as rows whose factors can be swapped: each row as its own week has it, and as the other.

A row keeps its place in the distribution: of its kind (model and tenant) the n-th longest prompt becomes the n-th
longest of the other week. So a week swapped for itself is itself, and what goes together stays together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.weeks.week_taken import Marks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.weeks.week_taken import TakenWeek

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

LEAST_ROWS = 50
"""Kinds of fewer rows in both weeks are taken together."""


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


def week_pair(earlier: TakenWeek, later: TakenWeek) -> tuple[WeekTraffic, WeekTraffic]:
    """The two weeks with each other's marks beside their own."""
    weeks = (earlier, later)
    kinds, gap_kinds = _kinds(weeks)
    made = []
    for here, there in ((0, 1), (1, 0)):
        own, other = weeks[here], weeks[there]
        marks = Marks(
            *(
                as_other(getattr(own.marks, name), kinds[here], getattr(other.marks, name), kinds[there])
                for name in vars(own.marks)
            )
        )
        waits = Waits(
            gap_kinds[here],
            (own.wait_tokens, as_other(own.wait_tokens, gap_kinds[here], other.wait_tokens, gap_kinds[there])),
            (own.wait_s, as_other(own.wait_s, gap_kinds[here], other.wait_s, gap_kinds[there])),
        )
        made.append(WeekTraffic(own.arrived_us, kinds[here], own.marks, marks, waits, own.requests, own.waits_requests))
    return made[0], made[1]


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


def _kinds(weeks: tuple[TakenWeek, TakenWeek]) -> tuple[list[Wholes], list[Wholes]]:
    """Number of the kind of each request and of each tool wait, by week; 0 for all that are rare."""
    counts = pl.concat(week.names.group_by("model", "tenant").len() for week in weeks)
    common = (
        counts.group_by("model", "tenant").agg(pl.col("len").max()).filter(pl.col("len") >= LEAST_ROWS)
        .sort("model", "tenant", nulls_last=True).select("model", "tenant").with_row_index("kind", offset=1)
    )  # fmt: skip
    return [_numbers(week.names, common) for week in weeks], [_numbers(week.wait_names, common) for week in weeks]


def _numbers(frame: pl.DataFrame, common: pl.DataFrame) -> Wholes:
    joined = frame.join(common, on=["model", "tenant"], how="left", nulls_equal=True, maintain_order="left")
    return joined["kind"].fill_null(0).to_numpy().astype(np.int64)
