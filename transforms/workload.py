"""The frozen Workload: one deployment's attempts of a week, as the columns the planner computes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl

from transforms.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]

Kind = TypeVar("Kind", bound=np.generic)

WEEK_S = 7 * 86_400
MICROS = 1_000_000

ATTEMPT_COLUMNS = (
    "request_id", "arrived_at", "week", "session_id", "agent_id", "turn", "model", "tenant", "status", "prompt_tokens",
    "cached_prompt_tokens", "output_tokens", "requested_output_tokens", "queue_s", "ttft_s", "e2e_s", "is_failed",
    "prefix_block_tokens", "prefix_block_ids",
)  # fmt: skip
"""Columns of fct_attempts a Workload is made of."""

TOOL_WAIT_COLUMNS = ("session_id", "agent_id", "turn", "tenant", "arrived_at", "kind", "wait_s", "prior_context_tokens")
"""Columns of fct_tool_waits a Workload is made of."""


LABELS = ("model", "tenant", "session_id", "prefix_block_tokens", "prefix_block_ids")
_LENGTHS = ("prompt_tokens", "output_tokens", "is_failed")
_KNOWN_COLUMNS = (
    *LABELS, *_LENGTHS, "agent_id", "turn", "cached_prompt_tokens", "queue_s", "ttft_s", "e2e_s", "arrived_us",
    "is_carried",
)  # fmt: skip


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
    """Attempts of one deployment in one week, with those still running at its start; one element an attempt.

    Times are µs since the week's start (negative for carried attempts); durations NaN where the log does not say.
    """

    deployment_id: str
    week: str
    arrived_us: Wholes
    prompt_tokens: Reals
    cached_tokens: Reals
    """0 where unknown, never above the prompt less the one token that is always computed."""
    output_tokens: Reals
    """0 where a failed attempt's output is unknown."""
    queue_s: Reals
    ttft_s: Reals
    e2e_s: Reals
    is_failed: Flags
    is_carried: Flags
    """Arrived before the week and still running at its start: in its residency, not in its KV·time."""
    labels: pl.DataFrame
    """One row an attempt: model, tenant, session, and the prefix blocks where the log has them."""
    rows_to_replay: pl.DataFrame
    """Attempts of known prompt as rows of ATTEMPT_COLUMNS, those of unknown output included, in order of arrival."""
    tool_waits: ToolWaits
    unknown: Unknown
    left_out: pl.DataFrame
    """Attempts of the week of unknown length, counted: model, tenant, is_failed, unknown_requests."""
    has_cached_tokens: bool
    has_prefix_blocks: bool
    attempts_requests: int
    """Attempts of the week, those of unknown length included."""
    sessions: int

    @property
    def rows(self) -> int:
        """Attempts in the columns."""
        return len(self.arrived_us)


def week_start(week: str) -> datetime:
    """Monday 00:00 UTC of an ISO week such as 2026-W47; ConfigError where it is not one."""
    try:
        year, number = week.split("-W")
        monday = date.fromisocalendar(int(year), int(number), 1)
    except ValueError as error:
        raise ConfigError(f"--week {week}: not an ISO week; write it like 2026-W47") from error
    return datetime(monday.year, monday.month, monday.day, tzinfo=UTC)


def make_workload(attempts: pl.DataFrame, tool_waits: pl.DataFrame, deployment_id: str, week: str) -> Workload:
    """Workload of `week` from rows of fct_attempts and fct_tool_waits of one deployment.

    Rows of the week, and rows before it whose end lies beyond its start, are kept; others are ignored.
    """
    start_us = _micros(week_start(week))
    timed = attempts.with_columns(
        (pl.col("arrived_at").dt.epoch("us") - start_us).alias("arrived_us"),
        (pl.col("week") != week).alias("is_carried"),
    )
    placed = _in_order(_chosen(timed, ~pl.col("is_carried") | ((pl.col("arrived_us") < 0) & _runs_into_the_week())))
    known = _chosen(placed.select(_KNOWN_COLUMNS), _is_known())
    prompt = _reals(known, "prompt_tokens")
    return Workload(
        deployment_id=deployment_id,
        week=week,
        arrived_us=_frozen(known["arrived_us"].to_numpy().astype(np.int64)),
        prompt_tokens=prompt,
        cached_tokens=_frozen(np.minimum(_reals(known, "cached_prompt_tokens", 0.0), np.maximum(prompt - 1, 0.0))),
        output_tokens=_reals(known, "output_tokens", 0.0),
        queue_s=_reals(known, "queue_s"),
        ttft_s=_reals(known, "ttft_s"),
        e2e_s=_reals(known, "e2e_s"),
        is_failed=_flags(known, "is_failed"),
        is_carried=_flags(known, "is_carried"),
        labels=known.select(LABELS),
        rows_to_replay=_chosen(placed.select(ATTEMPT_COLUMNS), pl.col("prompt_tokens") >= 1),
        tool_waits=_tool_waits(tool_waits, known, start_us),
        unknown=_unknown(placed, tool_waits),
        left_out=_left_out(placed),
        has_cached_tokens=known["cached_prompt_tokens"].is_not_null().any(),
        has_prefix_blocks=bool((known["prefix_block_ids"].list.len() > 0).any()),
        attempts_requests=placed.height - int(placed["is_carried"].sum()),
        sessions=placed.select(pl.col("session_id").filter(~pl.col("is_carried")).drop_nulls().n_unique()).item(),
    )


def _chosen(rows: pl.DataFrame, is_it: pl.Expr) -> pl.DataFrame:
    """`rows` that are it; the same frame, not a copy, where all are."""
    flags = rows.select(is_it.fill_null(value=False)).to_series()
    return rows if flags.all() else rows.filter(flags)


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` in order of arrival; the same frame, not a copy, where they are so already."""
    return rows if rows["arrived_us"].is_sorted() else rows.sort("arrived_us", maintain_order=True)


def _runs_into_the_week() -> pl.Expr:
    return pl.col("arrived_us") + pl.col("e2e_s").fill_null(0.0) * MICROS > 0


def _is_known() -> pl.Expr:
    return pl.col("prompt_tokens").is_not_null() & (pl.col("output_tokens").is_not_null() | pl.col("is_failed"))


def _is_whole() -> pl.Expr:
    return pl.col("prompt_tokens").is_not_null() & pl.col("output_tokens").is_not_null()


def _unknown(rows: pl.DataFrame, tool_waits: pl.DataFrame) -> Unknown:
    """Counts of the week's own rows that lack a length."""
    week_rows = rows.lazy().filter(~pl.col("is_carried"), ~_is_whole()).select(_LENGTHS).collect()
    no_prompt = pl.col("prompt_tokens").is_null()
    no_output = ~no_prompt & pl.col("output_tokens").is_null()
    counts = week_rows.select(
        no_prompt.sum().alias("prompt"),
        (no_output & ~pl.col("is_failed")).sum().alias("output"),
        (no_output & pl.col("is_failed")).sum().alias("failed"),
    ).row(0)
    lacking = tool_waits.filter((pl.col("kind") == "tool") & ~_is_measured_wait()).height
    return Unknown(int(counts[0]), int(counts[1]), int(counts[2]), lacking)


def _left_out(rows: pl.DataFrame) -> pl.DataFrame:
    """The week's own rows that cannot be used, counted."""
    groups = rows.filter(~pl.col("is_carried") & ~_is_known()).group_by(
        "model", "tenant", pl.col("is_failed").fill_null(value=False)
    )
    return groups.agg(pl.len().cast(pl.Int64).alias("unknown_requests"))


def _is_measured_wait() -> pl.Expr:
    return pl.col("wait_s").is_not_null() & pl.col("prior_context_tokens").is_not_null()


def _tool_waits(tool_waits: pl.DataFrame, attempts: pl.DataFrame, start_us: int) -> ToolWaits:
    """Gaps of kind tool that end in the attempts at hand; a gap takes the model of the request that ends it."""
    keys = ["session_id", "agent_id", "turn"]
    models = attempts.select(*keys, "model").unique(keys, keep="first", maintain_order=True)
    gaps = (
        tool_waits.filter((pl.col("kind") == "tool") & _is_measured_wait())
        .with_columns((pl.col("arrived_at").dt.epoch("us") - start_us).alias("end_us"))
        .join(models, on=keys, how="left", nulls_equal=True, maintain_order="left")
        .filter(pl.col("end_us") > 0)
    )
    end_us = gaps["end_us"].to_numpy().astype(np.int64)
    wait_us = np.rint(_reals(gaps, "wait_s") * MICROS).astype(np.int64)
    return ToolWaits(
        start_us=_frozen(end_us - wait_us),
        end_us=_frozen(end_us),
        tokens=_reals(gaps, "prior_context_tokens"),
        labels=gaps.select("model", "tenant", "session_id"),
    )


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _reals(frame: pl.DataFrame, column: str, unknown: float = float("nan")) -> Reals:
    return _frozen(frame[column].cast(pl.Float64).fill_null(unknown).to_numpy())


def _flags(frame: pl.DataFrame, column: str) -> Flags:
    return _frozen(frame[column].fill_null(value=False).to_numpy())


def _frozen(values: NDArray[Kind]) -> NDArray[Kind]:
    values.setflags(write=False)
    return values
