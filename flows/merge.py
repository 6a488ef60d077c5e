"""The committer's merge of one date: sorted runs and the lake's file become the new file, slice of time by slice."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from flows.lake_files import shared_constants, with_constants, without
from flows.runs import BATCH_ROWS, PLACE
from transforms.canonical import SCHEMA, SORT_KEYS
from transforms.identity import decided, number_content, shares_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Places = np.ndarray[Any, np.dtype[np.bool_]]

    from flows.lake_files import RequestsWriter
    from flows.runs import Run

SLICE_ROWS = 262_144
SLICE_BYTES = 64 << 20
"""What one slice of time may hold in memory: the smaller of both."""
NEEDED: dict[str, pl.DataType] = {
    **{name: SCHEMA[name] for name in (*SORT_KEYS, "source_file", "source_position")},
    "content_id": pl.UInt64(),
    **PLACE,
}
"""Columns of a run that the merge itself looks at."""
LAKE: dict[str, pl.DataType] = {**SCHEMA, **PLACE}
_EPOCH_AT = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)


@dataclass
class Tally:
    """What a merge did: rows loaded from each run, by its origin, and rows of earlier files that gave way."""

    loaded: dict[int, int] = field(default_factory=dict)
    displaced: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class DateMerge:
    """All that goes into the new file of one date.

    `decisions` is what `resolve` found (the lake's rows have `lake_origin`); `reread` names the (source, source_file)
    whose rows in the lake give way to their new reading.
    """

    day: str
    lake_files: Sequence[Path]
    lake_origin: int
    runs: Sequence[Run]
    decisions: pl.DataFrame
    reread: Sequence[tuple[str, str]]

    def write(self, writer: RequestsWriter) -> Tally:
        """Write the date's rows in order; gives what was loaded and what gave way."""
        tally = Tally()
        for start_us, end_us in self._slices():
            staged, constants = self._staged(start_us, end_us)
            lake = self._lake(start_us, end_us)
            if len(lake):
                staged, constants = with_constants(staged, constants), {}
            writer.write(self._merged(staged, constants, lake, tally), constants)
        return tally

    def _merged(
        self, staged: pl.DataFrame, constants: Mapping[str, Any], lake: pl.DataFrame, tally: Tally
    ) -> pl.DataFrame:
        """All rows of a slice in the lake's order, those alone at their instant with their `content_id` for an id.

        Columns that are all NULL may be left out, and so are `constants`.
        """
        kept = decided(lake, self.decisions)
        if len(kept) < len(lake):
            _add(tally.displaced, lake.join(kept, on="row", how="anti"))
        fresh = decided(staged, self.decisions)
        both = fresh if kept.is_empty() else pl.concat([kept, fresh], how="diagonal")
        if "attempt" in both.columns:
            both = both.with_columns(pl.col("attempt").fill_null(1))
        if not both["arrived_at"].is_sorted():
            both = both.sort("arrived_at", maintain_order=True)
        tied = shares_instant(both["arrived_at"])
        rows = both
        if tied.any():
            untied = _untied(with_constants(both.filter(tied), constants))
            rows = _replaced(rows, tied.to_numpy(), untied.select(rows.columns))
        for origin, number in rows["origin"].value_counts().iter_rows():
            if origin >= 0:
                tally.loaded[origin] = tally.loaded.get(origin, 0) + number
        return rows.drop("origin", "row")

    def _staged(self, start_us: int, end_us: int) -> tuple[pl.DataFrame, dict[str, Any]]:
        """The runs' rows of a slice without the constants that all of these runs share, and those constants."""
        runs = [run for run in self.runs if run.reaches(start_us, end_us)]
        shared = shared_constants([run.constants for run in runs]) if runs else {}
        if len(self.decisions):
            shared.pop("attempt", None)
        parts = [with_constants(run.between(start_us, end_us), without(run.constants, shared)) for run in runs]
        needed = pl.DataFrame(schema=without(NEEDED, shared))
        return pl.concat([needed, *parts], how="diagonal"), shared

    def _lake(self, start_us: int, end_us: int) -> pl.DataFrame:
        if not self.lake_files:
            return pl.DataFrame(schema=LAKE)
        start, end = (pl.lit(us).cast(SCHEMA["arrived_at"]) for us in (start_us, end_us))
        rows = (
            pl.scan_parquet(
                list(self.lake_files),
                schema=SCHEMA,
                missing_columns="insert",
                extra_columns="ignore",
                row_index_name="row",
            )
            .filter(pl.col("arrived_at").is_between(start, end, closed="left"))
            .collect()
        )
        for source, source_file in self.reread:
            rows = rows.filter(~((pl.col("source") == source) & (pl.col("source_file") == source_file)))
        return rows.with_columns(origin=pl.lit(self.lake_origin, dtype=pl.Int32)).select(*LAKE)

    def _slices(self) -> Iterator[tuple[int, int]]:
        """Spans of time [start, end) in us that cover the day, each with a bounded number of rows."""
        start_us = (date.fromisoformat(self.day) - _EPOCH).days * _DAY_US
        groups = [group for path in self.lake_files for group in _row_groups(path)]
        heaviest = max([run.bytes_per_row for run in self.runs] + [group.bytes_per_row for group in groups], default=1)
        slice_rows = max(min(SLICE_ROWS, int(SLICE_BYTES / heaviest)), 1)
        step = max(slice_rows // 8, 1)
        marks = [(group.first_us, group.rows) for group in groups]
        for run in self.runs:
            every = max(step, BATCH_ROWS)
            day = (us for us in run.stamps_us(every) if start_us <= us < start_us + _DAY_US)
            marks += [(us, every) for us in day]
        held = 0
        last_us = start_us
        for us, rows in sorted(marks):
            held += rows
            if held >= slice_rows and us > last_us:
                yield last_us, us
                last_us, held = us, 0
        yield last_us, start_us + _DAY_US


@dataclass(frozen=True)
class _RowGroup:
    first_us: int
    rows: int
    bytes_per_row: float


def _row_groups(path: Path) -> list[_RowGroup]:
    metadata = pq.read_metadata(path)
    column = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == "arrived_at")
    out = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = group.column(column).statistics
        first = statistics.min if statistics is not None else None
        first_us = (first - _EPOCH_AT) // _US if isinstance(first, datetime) else 0
        out.append(_RowGroup(first_us, group.num_rows, group.total_byte_size / group.num_rows))
    return out


FEW_SPANS = 400
"""Rows of so many spans of equal instants are put in their places one span after the other."""


def _replaced(rows: pl.DataFrame, tied: Places, untied: pl.DataFrame) -> pl.DataFrame:
    """`rows` with those at shared instants replaced by `untied`, which has fewer of them at an instant, or as many."""
    edges = np.flatnonzero(np.diff(tied.astype(np.int8), prepend=0, append=0))
    if len(edges) > 2 * FEW_SPANS:
        return rows.filter(~tied).merge_sorted(untied, key="arrived_at")
    stamps, new = rows["arrived_at"].to_physical().to_numpy(), untied["arrived_at"].to_physical().to_numpy()
    parts, done, taken = [], 0, 0
    for start, end in edges.reshape(-1, 2).tolist():
        upto = int(np.searchsorted(new, stamps[end - 1], side="right"))
        parts += [rows.slice(done, start - done), untied.slice(taken, upto - taken)]
        done, taken = end, upto
    return pl.concat([*parts, rows.slice(done)])


def _untied(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that share instants: each content once per occurrence, in the lake's order."""
    kept = rows.filter(pl.col("origin") < 0)
    fresh = number_content(rows.filter(pl.col("origin") >= 0).sort("source_file", "source_position"), kept)
    both = pl.concat([kept, fresh])
    if fresh["content_id"].null_count() < len(fresh):
        both = both.unique(subset=["source", "request_id", "attempt"], keep="first", maintain_order=True)
    named = both.with_columns(content_id=pl.lit(None, dtype=pl.UInt64))
    return named.sort(*SORT_KEYS, maintain_order=True)


def _add(counts: dict[tuple[str, str], int], rows: pl.DataFrame) -> None:
    for source, source_file, number in rows.group_by("source", "source_file").len().iter_rows():
        counts[source, source_file] = counts.get((source, source_file), 0) + number
