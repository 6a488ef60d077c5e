"""Sorted runs: parsed rows on disk, in order of arrival, read back by spans of time without holding a whole run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from flows.lake_files import with_constants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BATCH_ROWS = 32_768
"""Rows of a run that are read together."""
PLACE: dict[str, pl.DataType] = {"origin": pl.Int32(), "row": pl.UInt32()}
"""Where a row stands: the number of its run, and its own number in there."""


@dataclass(frozen=True)
class Run:
    """One run as `write_run` described it; `origin` is its number among all runs of an ingest."""

    origin: int
    path: str
    rows: int
    bytes_per_row: float
    columns: tuple[str, ...]
    constants: dict[str, Any]
    marks_us: list[int]
    last_us: int

    def reaches(self, start_us: int, end_us: int) -> bool:
        """Whether it has rows in [start, end), or may have."""
        return self.marks_us[0] < end_us and start_us <= self.last_us

    def between(self, start_us: int, end_us: int) -> pl.DataFrame:
        """Its rows that arrived in [start, end), with their place, without its constants and columns all NULL."""
        first = max(bisect_left(self.marks_us, start_us) - 1, 0)
        last = bisect_right(self.marks_us, end_us - 1)
        rows = self._read(self.columns, first, last)
        stamps = rows["arrived_at"].to_physical().to_numpy()
        begin, end = np.searchsorted(stamps, (start_us, end_us)).tolist()
        return rows.slice(begin, end - begin)

    def select(self, names: Sequence[str]) -> pl.DataFrame:
        """All its rows with these columns, as far as it has them, and their place."""
        rows = self._read([name for name in names if name in self.columns], 0, len(self.marks_us))
        return with_constants(rows, {name: self.constants[name] for name in names if name in self.constants})

    def stamps_us(self, step: int) -> list[int]:
        """Every `step`-th arrival, from the first batch to the last."""
        every = max(step // BATCH_ROWS, 1)
        return self.marks_us[every - 1 :: every]

    def _read(self, names: Sequence[str], first: int, last: int) -> pl.DataFrame:
        with pa.memory_map(self.path) as file:  # columns that are not asked for are never touched
            reader = pa.ipc.open_file(file)
            table = pa.Table.from_batches([reader.get_batch(n) for n in range(first, last)], reader.schema)
        table = table.select(list(names))
        rows: pl.DataFrame = pl.from_arrow(table, rechunk=False)  # type: ignore[assignment]
        begin = first * BATCH_ROWS
        return rows.with_columns(
            origin=pl.lit(self.origin, dtype=pl.Int32),
            row=pl.int_range(begin, begin + len(rows), dtype=pl.UInt32),
        )


def open_run(origin: int, info: dict[str, Any]) -> Run:
    """The run that `write_run` described as `info`."""
    return Run(
        origin,
        info["path"],
        info["rows"],
        info["bytes"] / info["rows"],
        tuple(info["columns"]),
        info["constants"],
        info["marks_us"],
        info["last_us"],
    )


def write_run(rows: pl.DataFrame, path: Path, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Write rows, which are in order of arrival; gives where they are and what is in them, as a plain dict.

    Columns of one value are not written but named among the `constants`, as are those given; those of none not at all.
    """
    without_ids = rows["request_id"].null_count() if "request_id" in rows.columns else len(rows)
    size_bytes = rows.estimated_size()
    empty = [name for name in rows.columns if rows[name].null_count() == len(rows)]
    found = {name: rows[name][0] for name in rows.columns if name not in empty and _is_constant(rows[name])}
    stored = rows.drop(*empty, *found)
    stored.write_ipc(path, record_batch_size=BATCH_ROWS)
    return {
        "path": str(path),
        "rows": len(rows),
        "bytes": size_bytes,
        "columns": stored.columns,
        "constants": {**constants, **{name: [] if name == "flags" else value for name, value in found.items()}},
        "dates": _dates(rows["arrived_at"]),
        "marks_us": rows["arrived_at"].to_physical().gather_every(BATCH_ROWS).to_list(),
        "last_us": rows["arrived_at"].to_physical()[-1],
        "has_ids": without_ids < len(rows),
        "has_content": without_ids > 0,
    }


def _dates(stamps: pl.Series) -> list[str]:
    """The UTC dates of sorted stamps."""
    first, last = stamps[0].date(), stamps[-1].date()
    days = [first] if first == last else stamps.dt.date().unique().sort()
    return [day.isoformat() for day in days]


def _is_constant(column: pl.Series) -> bool:
    if column.name == "flags":
        return not column.list.len().sum()
    if column.name in ("arrived_at", "source_position", "content_id") or isinstance(column.dtype, pl.List):
        return False
    return not column.null_count() and bool((column == column[0]).all())
