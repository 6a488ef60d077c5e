"""The sessions that hold most KV·time: walked in blocks of whole sessions, the largest kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.attempts import PART_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from transforms.planner.residency.held import Held, WeekHeld

OWN = ("prompt_kv_time_byte_s", "output_kv_time_byte_s")
_SCHEMA = {
    "session_id": pl.Categorical(),
    "attempts_requests": pl.Int64(),
    **dict.fromkeys(OWN, pl.Float64()),
    "kv_time_byte_s": pl.Float64(),
}


class Largest:
    """The `count` largest by `kv_time_byte_s` of what is added, of equal ones the earlier."""

    def __init__(self, count: int) -> None:
        """Start with none."""
        self.count = count
        self._found = pl.DataFrame(schema=_SCHEMA)
        self._least_byte_s = -1.0

    def add(self, some: pl.DataFrame) -> None:
        """Add holders."""
        self._found = pl.concat([self._found, some.filter(pl.col("kv_time_byte_s") > self._least_byte_s)])
        if self._found.height > 2 * self.count + PART_ROWS:
            self._found = self.table()
            self._least_byte_s = float(self._found["kv_time_byte_s"][-1])

    def table(self) -> pl.DataFrame:
        """Those found, the largest first."""
        return self._found.sort("kv_time_byte_s", descending=True, maintain_order=True).head(self.count)


def largest(held: WeekHeld, count: int, named_count: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The `count` sessions that hold most, the largest first, and so many (`named_count`) of those with a name.

    Columns: session_id, attempts_requests, KV·time of prompts and outputs, and of both.
    """
    everyone, named = Largest(count), Largest(named_count)
    for some in holders(held):
        everyone.add(some)
        named.add(some.filter(pl.col("session_id").is_not_null()))
    return everyone.table(), named.table()


def holders(held: WeekHeld) -> Iterator[pl.DataFrame]:
    """Sessions with the attempts and the KV·time of each, then every attempt without a session as one."""
    sessions, is_carried = held.workload.labels["session_id"], held.workload.is_carried
    is_in_session = sessions.is_not_null().to_numpy()
    for rows in session_blocks(sessions, np.flatnonzero(is_in_session & ~is_carried)):
        yield _of_sessions(held.at(rows), sessions)
    for part in held.parts():
        alone = np.flatnonzero(~is_in_session[part.rows])
        if len(alone):
            values = (part.prompt_byte_s[alone], part.output_byte_s[alone])
            yield _frame(
                pl.Series([None], dtype=pl.Categorical).new_from_index(0, len(alone)), np.ones(len(alone)), *values
            )


def session_blocks(sessions: pl.Series, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """`rows` by session, sessions as they first appear, rows of one as they are; no session in two blocks."""
    if not len(rows):
        return
    codes = sessions[rows].to_physical().to_numpy()
    first = np.zeros(int(codes.max()) + 1, dtype=np.int32 if len(rows) < 1 << 31 else np.int64)
    first[codes[::-1]] = np.arange(len(rows), dtype=first.dtype)[::-1]
    begins = first[codes]
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    low = 0
    while low < len(rows):
        high = min(low + PART_ROWS, len(rows))
        high = int(np.searchsorted(begins, begins[high - 1], side="right"))
        yield rows[order[low:high]]
        low = high


def _of_sessions(held: Held, sessions: pl.Series) -> pl.DataFrame:
    """One row a session.

    Sums are of lists, whose order is that of the rows: sums of groups hang on how many threads share them out.
    """
    each = _frame(sessions[held.rows], np.ones(len(held.rows)), held.prompt_byte_s, held.output_byte_s)
    grouped = each.group_by("session_id", maintain_order=True)
    summed = grouped.agg(pl.len().cast(pl.Int64).alias("attempts_requests"), pl.col(OWN)).with_columns(
        pl.col(OWN).list.sum()
    )
    return summed.with_columns(kv_time_byte_s=pl.col(OWN[0]) + pl.col(OWN[1])).select(*_SCHEMA)


def _frame(
    sessions: pl.Series, attempts: NDArray[np.float64], prompt: NDArray[np.float64], output: NDArray[np.float64]
) -> pl.DataFrame:
    columns = (sessions, attempts.astype(np.int64), prompt, output, prompt + output)
    return pl.DataFrame(dict(zip(_SCHEMA, columns, strict=True)), schema=_SCHEMA)
