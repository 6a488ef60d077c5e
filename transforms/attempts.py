"""Attempts of a week as columns: narrow as a whole, to keep; as floats in parts, to compute on; as rows where they lie.

A week is kept in a few dozen bytes an attempt and looked at PART_ROWS at a time, so that the memory of a plan hardly
grows with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Rows = slice | Wholes
    """Which rows: a stretch of them, or their numbers."""

PART_ROWS = 1 << 17
"""Attempts looked at at once: bounds the working memory, whatever the number of attempts."""

LARGEST_COUNT = 2**31 - 1


class LoggedRows(Protocol):
    """Rows of fct_attempts in order of arrival, where they lie: in memory, or in files that are read piece by piece."""

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """All rows in order, `columns` of them, in frames of any size, one at least."""

    def between(self, columns: Sequence[str], low_us: int, high_us: int) -> Iterator[pl.DataFrame]:
        """Frames, one at least, with all rows of `arrived_at` in [low_us, high_us), µs since 1970, and maybe others."""


@dataclass(frozen=True, eq=False)
class FrameRows:
    """Rows in memory."""

    frame: pl.DataFrame
    batch_rows: int | None = None
    """Rows of a batch; None: all in one."""

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """All rows in order, `columns` of them; one frame at least."""
        frame, height = self.frame.select(columns), self.frame.height
        for low in range(0, max(height, 1), self.batch_rows or max(height, 1)):
            yield frame.slice(low, self.batch_rows)

    def between(self, columns: Sequence[str], low_us: int, high_us: int) -> Iterator[pl.DataFrame]:
        """Rows with `arrived_at` in [low_us, high_us)."""
        at_us = pl.col("arrived_at").dt.epoch("us")
        yield self.frame.filter(at_us >= low_us, at_us < high_us).select(columns)


@dataclass(frozen=True, eq=False)
class Attempts:
    """Attempts in order of arrival, one element each, to compute on.

    Times are µs since the week's start (negative for carried attempts); durations NaN where the log does not say.
    """

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

    @property
    def rows(self) -> int:
        """Attempts in the columns."""
        return len(self.arrived_us)

    def has_prompt_below(self, limit_tokens: float) -> Flags:
        """Whether each has a prompt of fewer tokens."""
        return self.prompt_tokens < limit_tokens


NAMES = tuple(field.name for field in fields(Attempts))


@dataclass(frozen=True, eq=False)
class KeptAttempts:
    """The columns of Attempts as they are kept: tokens in 4 bytes, a column that is the same throughout in none."""

    columns: dict[str, NDArray[Any]]

    def at(self, rows: Rows) -> Attempts:
        """The attempts of `rows`, to compute on."""
        return Attempts(**{name: wide(values[rows]) for name, values in self.columns.items()})


def parts_of(count: int) -> Iterator[slice]:
    """`count` rows in parts of PART_ROWS, in order."""
    for low in range(0, count, PART_ROWS):
        yield slice(low, min(low + PART_ROWS, count))


def wide(values: NDArray[Any]) -> NDArray[Any]:
    """`values` to compute on: counts as floats, for products of them do not fit 4 bytes; others as they are."""
    return values.astype(np.float64) if values.dtype == np.int32 else values


def narrow(values: NDArray[Any]) -> NDArray[Any]:
    """`values` to keep: those that are all the same as one value that is read many times."""
    if not len(values):
        return values
    is_nan = values.dtype == np.float64 and np.isnan(values[0])
    is_same = np.isnan(values).all() if is_nan else (values == values[0]).all()
    return np.broadcast_to(values[0], len(values)) if is_same else values


def counts(values: Reals) -> NDArray[Any]:
    """Whole tokens in 4 bytes each, where they are whole and fit."""
    short = values.astype(np.int32) if values.max(initial=0.0) <= LARGEST_COUNT else values
    return short if (short == values).all() else values


def joined(pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Narrow pieces of one column as one, read only."""
    full = [piece for piece in pieces if len(piece)] or list(pieces[:1])
    if all(piece.strides == (0,) and _is_same(piece[0], full[0][0]) for piece in full if len(piece)):
        return np.broadcast_to(full[0][0], sum(map(len, full))) if len(full[0]) else full[0]
    whole = np.concatenate(full)
    whole.setflags(write=False)
    return whole


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN is NaN
