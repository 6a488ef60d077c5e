"""The frozen Workload: one deployment's attempts of a week, as the columns the planner computes on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from transforms.attempts import wide
from transforms.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from transforms.attempts import Attempts, KeptAttempts, LoggedRows, Rows

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]

WEEK_S = 7 * 86_400
MICROS = 1_000_000

ATTEMPT_COLUMNS = (
    "request_id", "arrived_at", "week", "session_id", "agent_id", "turn", "model", "tenant", "status", "prompt_tokens",
    "cached_prompt_tokens", "output_tokens", "requested_output_tokens", "queue_s", "ttft_s", "e2e_s", "is_failed",
    "prefix_block_tokens", "prefix_block_ids",
)  # fmt: skip
"""Columns of fct_attempts a Workload is made of."""

TOOL_WAIT_COLUMNS = ("session_id", "model", "tenant", "arrived_at", "kind", "wait_s", "prior_context_tokens")
"""Columns of fct_tool_waits a Workload is made of."""

LABELS = ("model", "tenant", "session_id")
PREFIXES = ("prefix_block_tokens", "prefix_block_ids")
_PLACING = ("arrived_at", "week", "e2e_s")
"""Columns that say whether a row is of the week, or runs into it."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """Rows that could not be used, and rows used with something assumed: counts of attempts of the week."""

    prompt_requests: int
    """Left out: prompt length unknown."""
    output_requests: int
    """Left out: answered, but output length unknown."""
    failed_output_requests: int
    """Failed with unknown output: they hold their prompt until they end."""
    tool_waits: int
    """Tool waits without a known length or context: left out."""


@dataclass(frozen=True, eq=False)
class ToolWaits:
    """Gaps in which a session waits for its tools: µs since the week's start, tokens a pinned cache would hold."""

    start_us: Wholes
    end_us: Wholes
    tokens: Reals
    labels: pl.DataFrame
    """One row a gap: model, tenant, session."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Attempts of one deployment in one week, with those still running at its start, in order of arrival."""

    deployment_id: str
    week: str
    kept: KeptAttempts
    """One element an attempt; `at` gives those of some rows to compute on."""
    labels: pl.DataFrame
    """One row an attempt: model, tenant and session as categories, and the prefix blocks where the log has them."""
    logged: LoggedRows
    """The rows that it was made of."""
    tool_waits: ToolWaits
    unknown: Unknown
    left_out: pl.DataFrame
    """Attempts of the week of unknown length, counted: model, tenant, is_failed, unknown_requests."""
    has_cached_tokens: bool
    has_prefix_blocks: bool
    attempts_requests: int
    """Attempts of the week, those of unknown length included."""
    replayable_requests: int
    """Attempts of known prompt: rows of `rows_to_replay`."""
    sessions: int

    @property
    def rows(self) -> int:
        """Attempts in the columns."""
        return len(self.arrived_us)

    def at(self, rows: Rows) -> Attempts:
        """The attempts of `rows`, to compute on."""
        return self.kept.at(rows)

    def has_prompt_below(self, limit_tokens: float) -> Flags:
        """Whether each has a prompt of fewer tokens."""
        is_below: Flags = self.kept.columns["prompt_tokens"] < limit_tokens
        return is_below

    def names(self, rows: Wholes, *columns: str) -> pl.DataFrame:
        """Labels of `rows` as text."""
        return self.labels.select(columns)[rows].cast(pl.String)

    def rows_to_replay(
        self, columns: Sequence[str] = ATTEMPT_COLUMNS, low_us: float = -math.inf, high_us: float = math.inf
    ) -> pl.DataFrame:
        """Attempts of known prompt as rows of ATTEMPT_COLUMNS, those of unknown output included, in order of arrival.

        Those that arrive in [low_us, high_us), µs since the week's start.
        """
        needed = list(dict.fromkeys([*columns, *_PLACING, "prompt_tokens"]))
        start_us, about_us = micros(week_start(self.week)), 2 * WEEK_S * MICROS
        if max(-low_us, high_us) >= about_us:
            batches = self.logged.batches(needed)
        else:
            batches = self.logged.between(needed, start_us + math.floor(low_us), start_us + math.ceil(high_us))
        is_asked = pl.col("arrived_us").is_between(low_us, high_us, closed="left") & (pl.col("prompt_tokens") >= 1)
        return pl.concat(chosen(placed(rows, self.week), is_asked).select(columns) for rows in batches)

    @property
    def arrived_us(self) -> Wholes:
        """Arrival of each, µs since the week's start; negative for carried attempts."""
        return self.kept.columns["arrived_us"]

    @property
    def prompt_tokens(self) -> Reals:
        """Prompt of each, tokens."""
        return self._tokens("prompt_tokens")

    @property
    def cached_tokens(self) -> Reals:
        """Cached part of each prompt, tokens."""
        return self._tokens("cached_tokens")

    @property
    def output_tokens(self) -> Reals:
        """Output of each, tokens."""
        return self._tokens("output_tokens")

    @property
    def queue_s(self) -> Reals:
        """Logged queue time of each, s, NaN where unknown."""
        return self.kept.columns["queue_s"]

    @property
    def ttft_s(self) -> Reals:
        """Logged time to first token of each, s, NaN where unknown."""
        return self.kept.columns["ttft_s"]

    @property
    def e2e_s(self) -> Reals:
        """Logged time to the end of each, s, NaN where unknown."""
        return self.kept.columns["e2e_s"]

    @property
    def is_failed(self) -> Flags:
        """Whether each failed."""
        return self.kept.columns["is_failed"]

    @property
    def is_carried(self) -> Flags:
        """Whether each arrived before the week and still ran at its start."""
        return self.kept.columns["is_carried"]

    def _tokens(self, name: str) -> Reals:
        values = wide(self.kept.columns[name])
        values.setflags(write=False)
        return values


def week_start(week: str) -> datetime:
    """Monday 00:00 UTC of an ISO week such as 2026-W47; ConfigError where it is not one."""
    try:
        year, number = week.split("-W")
        monday = date.fromisocalendar(int(year), int(number), 1)
    except ValueError as error:
        raise ConfigError(f"--week {week}: not an ISO week; write it like 2026-W47") from error
    return datetime(monday.year, monday.month, monday.day, tzinfo=UTC)


def placed(attempts: pl.DataFrame, week: str) -> pl.DataFrame:
    """Rows of `attempts` in `week` or before it and running into it, with `arrived_us` (since its start), `is_carried`.

    The same frame, not a copy, where all are.
    """
    timed = attempts.with_columns(
        (pl.col("arrived_at").dt.epoch("us") - micros(week_start(week))).alias("arrived_us"),
        (pl.col("week") != week).alias("is_carried"),
    )
    runs_in = pl.col("arrived_us") + pl.col("e2e_s").fill_null(0.0) * MICROS > 0
    return chosen(timed, ~pl.col("is_carried") | ((pl.col("arrived_us") < 0) & runs_in))


def chosen(rows: pl.DataFrame, is_it: pl.Expr) -> pl.DataFrame:
    """`rows` that are it; the same frame, not a copy, where all are."""
    flags = rows.select(is_it.fill_null(value=False)).to_series()
    return rows if flags.all() else rows.filter(flags)


def micros(moment: datetime) -> int:
    """µs of `moment` since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
