"""Rows of fct_attempts and fct_tool_waits into the Workload of a week, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.attempts import NAMES, FrameRows, KeptAttempts, counts, joined, narrow
from transforms.workload import (
    ATTEMPT_COLUMNS,
    LABELS,
    MICROS,
    PREFIXES,
    ToolWaits,
    Unknown,
    Workload,
    chosen,
    micros,
    placed,
    week_start,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from transforms.attempts import LoggedRows

    Reals = NDArray[np.float64]

_GROUP = ("model", "tenant", "is_failed")
_UNREAD = {"request_id", "status", "requested_output_tokens", "agent_id", "turn"}
_COLUMNS = tuple(name for name in ATTEMPT_COLUMNS if name not in _UNREAD)


@dataclass(frozen=True, eq=False)
class _Piece:
    """What one batch of rows comes to."""

    columns: dict[str, NDArray[Any]]
    labels: pl.DataFrame
    prefixes: pl.DataFrame | None
    """None where no row of the batch has prefix blocks."""
    sessions: pl.Series
    """Those of the week, as numbers."""
    left_out: pl.DataFrame
    lacking: tuple[int, int, int]
    """Attempts of the week without prompt; answered without output; failed without output."""
    attempts: int
    replayable: int
    has_cached: bool


def make_workload(
    attempts: pl.DataFrame | LoggedRows, tool_waits: pl.DataFrame, deployment_id: str, week: str
) -> Workload:
    """Workload of `week` from rows of fct_attempts (in order of arrival, unless a frame) and fct_tool_waits.

    Rows of the week, and rows before it whose end lies beyond its start, are kept; others are ignored.
    """
    logged = _in_order(attempts) if isinstance(attempts, pl.DataFrame) else attempts
    gaps = tool_waits.filter((pl.col("kind") == "tool") & _is_measured_wait())
    pieces = [_piece(batch, week) for batch in logged.batches(_COLUMNS)]
    no_prompt, no_output, failed = (sum(piece.lacking[place] for piece in pieces) for place in range(3))
    unmeasured = tool_waits.filter((pl.col("kind") == "tool") & ~_is_measured_wait()).height
    return Workload(
        deployment_id=deployment_id,
        week=week,
        kept=_kept(pieces),
        labels=_labels(pieces),
        logged=logged,
        tool_waits=_tool_waits(gaps, week),
        unknown=Unknown(no_prompt, no_output, failed, unmeasured),
        left_out=pl.concat(piece.left_out for piece in pieces).group_by(_GROUP).agg(pl.col("unknown_requests").sum()),
        has_cached_tokens=any(piece.has_cached for piece in pieces),
        has_prefix_blocks=any(piece.prefixes is not None for piece in pieces),
        attempts_requests=sum(piece.attempts for piece in pieces),
        replayable_requests=sum(piece.replayable for piece in pieces),
        sessions=_distinct([piece.sessions for piece in pieces]),
    )


def _in_order(rows: pl.DataFrame) -> FrameRows:
    """`rows` in order of arrival; the same frame, not a copy, where they are so already."""
    return FrameRows(rows if rows["arrived_at"].is_sorted() else rows.sort("arrived_at", maintain_order=True))


def _piece(batch: pl.DataFrame, week: str) -> _Piece:
    rows = placed(batch, week)
    known = chosen(rows, pl.col("prompt_tokens").is_not_null() & _has_output())
    has_blocks = bool((known["prefix_block_ids"].list.len() > 0).any())
    week_rows = chosen(rows, ~pl.col("is_carried"))
    return _Piece(
        columns=_columns(known),
        labels=known.select(pl.col(LABELS).cast(pl.Categorical)),
        prefixes=known.select(PREFIXES) if has_blocks else None,
        sessions=week_rows["session_id"].drop_nulls().cast(pl.Categorical).to_physical(),
        left_out=_left_out(week_rows),
        lacking=_lacking(week_rows),
        attempts=week_rows.height,
        replayable=int((rows["prompt_tokens"] >= 1).sum()),
        has_cached=known["cached_prompt_tokens"].is_not_null().any(),
    )


def _columns(known: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Columns of Attempts, narrow."""
    prompt = _reals(known, "prompt_tokens")
    cached = np.minimum(_reals(known, "cached_prompt_tokens", 0.0), np.maximum(prompt - 1, 0.0))
    tokens = {
        "prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": _reals(known, "output_tokens", 0.0)
    }  # fmt: skip
    columns = {
        "arrived_us": known["arrived_us"].to_numpy().astype(np.int64),
        **{name: counts(values) for name, values in tokens.items()},
        **{name: _reals(known, name) for name in ("queue_s", "ttft_s", "e2e_s")},
        "is_failed": known["is_failed"].fill_null(value=False).to_numpy(),
        "is_carried": known["is_carried"].fill_null(value=False).to_numpy(),
    }
    return {name: narrow(values) for name, values in columns.items()}


def _kept(pieces: Sequence[_Piece]) -> KeptAttempts:
    """All columns, each whole; those of the pieces are let go one by one."""
    return KeptAttempts({name: joined([piece.columns.pop(name) for piece in pieces]) for name in NAMES})


def _labels(pieces: Sequence[_Piece]) -> pl.DataFrame:
    labels = pl.concat(piece.labels for piece in pieces).rechunk()
    if all(piece.prefixes is None for piece in pieces):
        return labels
    blocks = next(piece.prefixes for piece in pieces if piece.prefixes is not None)
    frames = [blocks.clear(piece.labels.height) if piece.prefixes is None else piece.prefixes for piece in pieces]
    return labels.with_columns(pl.concat(frames, rechunk=True))


def _has_output() -> pl.Expr:
    return pl.col("output_tokens").is_not_null() | pl.col("is_failed")


def _lacking(week_rows: pl.DataFrame) -> tuple[int, int, int]:
    """Counts of the week's own rows that lack a length."""
    no_prompt = pl.col("prompt_tokens").is_null()
    no_output = ~no_prompt & pl.col("output_tokens").is_null()
    found = week_rows.select(
        no_prompt.sum().alias("prompt"),
        (no_output & ~pl.col("is_failed")).sum().alias("output"),
        (no_output & pl.col("is_failed")).sum().alias("failed"),
    ).row(0)
    return int(found[0]), int(found[1]), int(found[2])


def _left_out(week_rows: pl.DataFrame) -> pl.DataFrame:
    """The week's own rows that cannot be used, counted."""
    groups = week_rows.filter(~(pl.col("prompt_tokens").is_not_null() & _has_output())).group_by(
        "model", "tenant", pl.col("is_failed").fill_null(value=False)
    )
    return groups.agg(pl.len().cast(pl.Int64).alias("unknown_requests"))


def _distinct(numbers: Sequence[pl.Series]) -> int:
    """How many different numbers there are."""
    codes = [some.to_numpy() for some in numbers]
    seen = np.zeros(max(int(some.max(initial=0)) for some in codes) + 1, dtype=np.bool_)
    for some in codes:
        seen[some] = True
    return int(seen.sum())


def _is_measured_wait() -> pl.Expr:
    return pl.col("wait_s").is_not_null() & pl.col("prior_context_tokens").is_not_null()


def _tool_waits(measured: pl.DataFrame, week: str) -> ToolWaits:
    """Gaps of kind tool that end in the week."""
    since_us = pl.col("arrived_at").dt.epoch("us") - micros(week_start(week))
    gaps = measured.with_columns(since_us.alias("end_us")).filter(pl.col("end_us") > 0)
    end_us = gaps["end_us"].to_numpy().astype(np.int64)
    wait_us = np.rint(_reals(gaps, "wait_s") * MICROS).astype(np.int64)
    waits = (end_us - wait_us, end_us, _reals(gaps, "prior_context_tokens"))
    for values in waits:
        values.setflags(write=False)
    return ToolWaits(*waits, labels=gaps.select(LABELS))


def _reals(frame: pl.DataFrame, column: str, unknown: float = float("nan")) -> Reals:
    return frame[column].cast(pl.Float64).fill_null(unknown).to_numpy()
