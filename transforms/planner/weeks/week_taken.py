"""What is held of a week to be compared with another: a sample of it, so that no two weeks are in memory at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import parts_of
from transforms.planner.residency.occupancy import HOUR_S
from transforms.planner.residency.timeline import accepted
from transforms.planner.sizing.demand import slo_peaks
from transforms.workload import MICROS, WEEK_S

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from transforms.attempts import Attempts
    from transforms.planner.sizing.demand import SloPeaks
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MOST_ROWS = 100_000
"""Rows looked at of a week: of more, every n-th, each standing for n."""

P95 = 0.95
LEAST_TIMED = 200
"""Requests with a logged time to first token that a week must have."""

LEAD_S = 600
"""Replayed before the hour, and not counted."""

MOST_HOUR_ROWS = 20_000
WEEK_HOURS = WEEK_S // HOUR_S


@dataclass(frozen=True, eq=False)
class Marks:
    """What two weeks differ in, one element a row: tokens of prompt and output, and share of the prompt cached."""

    prompt: Reals
    output: Reals
    cached_ratio: Reals


@dataclass(frozen=True, eq=False)
class Hour:
    """The busiest hour of a week with its lead: seconds since the lead's start, and marks of each request."""

    arrived_s: Reals
    marks: Marks


@dataclass(frozen=True, eq=False)
class FirstTokens:
    """Logged times to first token of answered requests, and the hour in which most tokens arrive."""

    p95_s: float | None
    """None from fewer than LEAST_TIMED."""
    slowest_s: tuple[float, float] | None
    """Mean queue and mean prefill of the slowest 5 %; None where queues are not logged."""
    hour: Hour


@dataclass(frozen=True, eq=False)
class TakenWeek:
    """Some of the accepted requests and tool waits of a week, evenly spread over them, and how many there are."""

    week: str
    rows: int
    """Attempts of its workload."""
    requests: float
    arrived_us: Wholes
    marks: Marks
    names: pl.DataFrame
    """Model and tenant of each."""
    waits_requests: float
    wait_tokens: Reals
    wait_s: Reals
    wait_names: pl.DataFrame
    first_tokens: FirstTokens
    peaks: SloPeaks | None
    """Of all requests; None where all are rows. A row that stands for n has all n come at once, and peaks higher."""


def taken_week(week: Workload, replica: Replica, peaks: SloPeaks | None = None) -> TakenWeek:
    """What is compared of `week` on replicas like `replica`; `peaks` are its own, where they are known already."""
    is_taken = accepted(week, replica) & ~week.is_carried
    requests = int(is_taken.sum())
    rows = np.flatnonzero(is_taken)[_every(requests)]
    waits, sample = week.tool_waits, week.at(rows)
    gaps = _every(len(waits.end_us))
    return TakenWeek(
        week=week.week,
        rows=week.rows,
        requests=float(requests),
        arrived_us=sample.arrived_us,
        marks=marks_of(sample),
        names=week.names(rows, "model", "tenant"),
        waits_requests=float(len(waits.end_us)),
        wait_tokens=waits.tokens[gaps],
        wait_s=(waits.end_us - waits.start_us)[gaps] / 1e6,
        wait_names=waits.labels.select("model", "tenant")[gaps],
        first_tokens=FirstTokens(_logged_p95_s(week), _slowest_s(week), _busiest_hour(week, is_taken)),
        peaks=(peaks or slo_peaks(week, replica)) if len(rows) < requests else None,
    )


def marks_of(attempts: Attempts) -> Marks:
    """Marks of `attempts`."""
    prompt = attempts.prompt_tokens
    return Marks(prompt, attempts.output_tokens, attempts.cached_tokens / np.maximum(prompt, 1.0))


def _every(count: int) -> Wholes:
    """Places of at most MOST_ROWS of `count` rows, evenly spread."""
    return np.arange(0, count, max(1, -(-count // MOST_ROWS)), dtype=np.int64)


def _logged_p95_s(week: Workload) -> float | None:
    """P95 of the logged times to first token of answered requests, s; None from fewer than 200."""
    known = week.ttft_s[~week.is_carried & ~week.is_failed & ~np.isnan(week.ttft_s)]
    p95_s = float(np.quantile(known, P95)) if len(known) >= LEAST_TIMED else 0.0
    return p95_s if p95_s > 0 else None


def _slowest_s(week: Workload) -> tuple[float, float] | None:
    """Mean queue and mean prefill of the slowest 5 %, s; None where queues are not logged."""
    is_known = ~week.is_carried & ~week.is_failed & ~np.isnan(week.ttft_s) & ~np.isnan(week.queue_s)
    if is_known.sum() < LEAST_TIMED:
        return None
    ttft, queue = week.ttft_s[is_known], week.queue_s[is_known]
    slowest = ttft >= np.quantile(ttft, P95)
    return float(queue[slowest].mean()), float((ttft - queue)[slowest].mean())


def _busiest_hour(week: Workload, is_taken: Flags) -> Hour:
    """The hour in which most new tokens arrive, with its lead; its first MOST_HOUR_ROWS requests."""
    sums = np.zeros(WEEK_HOURS)
    for part in parts_of(week.rows):
        attempts, taken = week.at(part), is_taken[part]
        tokens = attempts.prompt_tokens - attempts.cached_tokens + attempts.output_tokens
        hour = np.clip(attempts.arrived_us // (HOUR_S * MICROS), 0, WEEK_HOURS - 1)
        sums += np.bincount(hour[taken], tokens[taken], WEEK_HOURS)
    start_s = float(sums.argmax()) * HOUR_S - LEAD_S
    span_us = np.array([start_s, start_s + LEAD_S + HOUR_S], dtype=np.int64) * MICROS
    low, high = np.searchsorted(week.arrived_us, span_us)
    rows = (low + np.flatnonzero(is_taken[low:high]))[:MOST_HOUR_ROWS]
    return Hour(week.arrived_us[rows] / MICROS - start_s, marks_of(week.at(rows)))
