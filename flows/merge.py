"""The committer's merge of one date: sorted runs and the lake's file become the new file, slice of time by slice."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.canonical import SCHEMA, SORT_KEYS
from transforms.identity import number_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flows.lake import RequestsWriter

SLICE_ROWS = 262_144
SLICE_BYTES = 64 << 20
"""What one slice of time may hold in memory: the smaller of both."""
PLACE: dict[str, pl.DataType] = {"origin": pl.Int32(), "row": pl.UInt32()}
STAGED: dict[str, pl.DataType] = {**SCHEMA, "content_id": pl.String(), **PLACE}
LAKE: dict[str, pl.DataType] = {**SCHEMA, **PLACE}
_EPOCH_AT = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Run:
    """A sorted run in memory-mapped form; `origin` is its number among all runs."""

    origin: int
    rows: pl.DataFrame
    bytes_per_row: float

    def between(self, start_us: int, end_us: int) -> pl.DataFrame:
        """Its rows that arrived in [start, end), with `origin` and `row` (their number in the run)."""
        stamps = self.rows["arrived_at"].to_physical()
        first, last = (int(stamps.search_sorted(us, side="left")) for us in (start_us, end_us))
        rows = self.rows.slice(first, last - first)
        return rows.with_columns(
            origin=pl.lit(self.origin, dtype=pl.Int32), row=pl.int_range(first, last, dtype=pl.UInt32)
        )


def open_run(origin: int, path: str, size_bytes: int) -> Run:
    """The run at `path`, mapped, not read."""
    table = pa.ipc.open_file(pa.memory_map(path)).read_all()
    rows = pl.DataFrame(table)
    return Run(origin, rows, size_bytes / max(len(rows), 1))


@dataclass
class Tally:
    """What a merge did: rows loaded of each file, and rows of earlier files that gave way."""

    loaded: dict[tuple[str, str], int] = field(default_factory=dict)
    displaced: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True)
class DateMerge:
    """All that goes into the new file of one date.

    `decisions` is what `resolve` found (the lake's rows have `lake_origin`); `reread` names the (source, source_file)
    whose rows in the lake give way to their new reading.
    """

    day: str
    lake_file: Path | None
    lake_origin: int
    runs: Sequence[Run]
    decisions: pl.DataFrame
    reread: Sequence[tuple[str, str]]

    def write(self, writer: RequestsWriter) -> Tally:
        """Write the date's rows in order; gives what was loaded and what gave way."""
        tally = Tally()
        for start_us, end_us in self._slices():
            staged = self._staged(start_us, end_us)
            lake = self._lake(start_us, end_us)
            writer.write(self._merged(staged, lake, tally))
        return tally

    def _merged(self, staged: pl.DataFrame, lake: pl.DataFrame, tally: Tally) -> pl.DataFrame:
        kept = _decided(lake, self.decisions)
        if len(kept) < len(lake):
            _add(tally.displaced, lake.join(kept, on="row", how="anti"))
        fresh = number_content(_decided(staged, self.decisions), kept)
        both = pl.concat([kept.select(*SCHEMA, "origin"), fresh.select(*SCHEMA, "origin")])
        if len(both) and fresh["content_id"].null_count() < len(fresh):
            both = both.unique(subset=["source", "request_id", "attempt"], keep="first", maintain_order=True)
        _add(tally.loaded, both.filter(pl.col("origin") >= 0))
        return both.select(*SCHEMA).sort(*SORT_KEYS, maintain_order=True)

    def _staged(self, start_us: int, end_us: int) -> pl.DataFrame:
        parts = [part for run in self.runs if len(part := run.between(start_us, end_us))]
        rows = pl.concat(parts, how="diagonal") if parts else pl.DataFrame(schema=STAGED)
        missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in STAGED.items() if name not in rows.columns]
        return rows.with_columns(missing).select(*STAGED).sort("source_file", "source_position", maintain_order=True)

    def _lake(self, start_us: int, end_us: int) -> pl.DataFrame:
        if self.lake_file is None:
            return pl.DataFrame(schema=LAKE)
        start, end = (pl.lit(us).cast(SCHEMA["arrived_at"]) for us in (start_us, end_us))
        rows = (
            pl.scan_parquet(
                self.lake_file, schema=SCHEMA, missing_columns="insert", extra_columns="ignore", row_index_name="row"
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
        groups = _row_groups(self.lake_file)
        heaviest = max([run.bytes_per_row for run in self.runs] + [group.bytes_per_row for group in groups], default=1)
        slice_rows = max(min(SLICE_ROWS, int(SLICE_BYTES / heaviest)), 1)
        step = max(slice_rows // 8, 1)
        marks = [(group.first_us, group.rows) for group in groups]
        for run in self.runs:
            day = run.between(start_us, start_us + _DAY_US)["arrived_at"].to_physical()
            marks += [(us, step) for us in day.gather_every(step, step - 1)]
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


def _row_groups(path: Path | None) -> list[_RowGroup]:
    if path is None:
        return []
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


def _decided(rows: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """`rows` without those that do not stay, with the attempt numbers that were found."""
    if decisions.is_empty() or rows.is_empty():
        return rows
    joined = rows.join(decisions.rename({"attempt": "found"}), on=("origin", "row"), how="left", maintain_order="left")
    kept = joined.filter(pl.col("keep").fill_null(value=True))
    return kept.with_columns(attempt=pl.coalesce("found", "attempt")).drop("found", "keep")


def _add(counts: dict[tuple[str, str], int], rows: pl.DataFrame) -> None:
    for source, source_file, number in rows.group_by("source", "source_file").len().iter_rows():
        counts[source, source_file] = counts.get((source, source_file), 0) + number
