"""Records of a file as columns of cells, for the formats read by a mapping: JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from flows.reading.cells import CellDecoder
from flows.reading.lines import clean
from transforms.batches import Reject, Table
from transforms.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.reading.lines import LineBatch
    from flows.reading.records import RecordStream
    from transforms.mapping import FieldMap

PARQUET_ROWS = 65_536
QUOTE, NEWLINE = 34, 10
WRONG_WIDTH = "wrong number of fields"


@dataclass(frozen=True)
class TableBatch:
    """A table with what its format never sees: records that are none, blank lines, and the raw text by position."""

    table: Table
    raw: Callable[[int], bytes]
    rejects: list[Reject] = field(default_factory=list)
    blank: int = 0
    too_long: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class TableStream:
    """The tables of one part of a file, with the cells of the fields a mapping names."""

    records: RecordStream
    mapping: FieldMap
    source_file: str
    carry: dict[str, Any] = field(default_factory=dict)

    def batches(self) -> Iterator[TableBatch]:
        """The tables, in file order; InputError where a CSV or Parquet file lacks a field."""
        layout = self.records.seen.layout
        if layout == "csv":
            self._check_columns()
            yield from self._csv_tables()
        elif layout == "parquet":
            self._check_columns()
            yield from self._parquet_tables()
        else:
            decoder = CellDecoder(self.mapping.fields)
            for batch in self.records.batches():
                yield self._json_table(decoder, batch)

    def _check_columns(self) -> None:
        known = self.records.seen.columns
        for name in self.mapping.required:
            if name not in known:
                listed = ", ".join(known[:12])
                raise InputError(f"has no column '{name}'{nearest(name, known)} (its columns: {listed})")

    def _json_table(self, decoder: CellDecoder, batch: LineBatch) -> TableBatch:
        decoded = decoder.decode(batch.lines, batch.positions)
        positions = pl.Series("source_position", decoded.positions, dtype=pl.Int64)
        flags = None
        if any(decoded.flags):
            flags = pl.Series("flags", [list(words) for words in decoded.flags], dtype=pl.List(pl.String))
        table = Table(self.source_file, decoded.cells, positions, is_json=True, flags=flags, carry=self.carry)
        raw = dict(zip(batch.positions, batch.lines, strict=True))
        return TableBatch(table, raw.__getitem__, decoded.rejects, batch.blank, batch.too_long)

    def _csv_tables(self) -> Iterator[TableBatch]:
        names = self.records.seen.columns
        is_headed = self.records.start == 0
        for block, position in self.records.csv_blocks():
            rows = csv_rows(block, self.records.seen.delimiter, len(names))
            starts = rows.starts + position
            if is_headed:
                rows, starts, is_headed = rows.without_first(), starts[1:], False
                self.records.ignored += 1
            yield self._csv_table(rows, starts, names, block, position)

    def _csv_table(
        self, rows: CsvRows, starts: np.ndarray[Any, Any], names: tuple[str, ...], block: bytes, position: int
    ) -> TableBatch:
        cells = rows.cells(names, self.records.seen.delimiter)
        known = cells.columns
        wanted = [pl.col(n) if n in known else pl.lit(None, dtype=pl.String).alias(n) for n in self.mapping.fields]
        positions = pl.Series("source_position", starts[rows.is_good], dtype=pl.Int64)
        table = Table(self.source_file, cells.select(wanted), positions, is_json=False, carry=self.carry)
        rejects = [Reject(int(p), WRONG_WIDTH) for p in starts[~rows.is_good & ~rows.is_blank]]

        def raw(start: int) -> bytes:
            following = starts[np.searchsorted(starts, start) + 1 :]
            end = int(following[0]) - position if len(following) else len(block)
            return clean(block[start - position : end], start)

        return TableBatch(table, raw, rejects, int(rows.is_blank.sum()))

    def _parquet_tables(self) -> Iterator[TableBatch]:
        import pyarrow.parquet as pq

        known = self.records.seen.columns
        wanted = [name for name in self.mapping.fields if name in known]
        row = 0
        for batch in pq.ParquetFile(self.records.seen.path).iter_batches(PARQUET_ROWS, columns=wanted):
            typed = pl.DataFrame(batch)
            cells = typed.select(_cell_text(typed[name]) for name in wanted)
            missing = [pl.lit(None, dtype=pl.String).alias(n) for n in self.mapping.fields if n not in wanted]
            positions = pl.int_range(row, row + len(typed), eager=True).alias("source_position")
            row += len(typed)
            yield TableBatch(
                Table(self.source_file, cells.with_columns(missing), positions, is_json=False, carry=self.carry),
                lambda position: str(position).encode(),
            )


def _cell_text(values: pl.Series) -> pl.Series:
    """Parquet values as the text a CSV would have."""
    if isinstance(values.dtype, pl.List):
        items = pl.element().cast(pl.String)
        quoted = pl.format('"{}"', items) if values.dtype.inner == pl.String else items
        joined = pl.format("[{}]", values.list.eval(quoted).list.join(","))
        return pl.select(pl.when(values.is_not_null()).then(joined).alias(values.name)).to_series()
    if isinstance(values.dtype, pl.Datetime) and values.dtype.time_zone:
        return values.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ")
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.to_string("%Y-%m-%dT%H:%M:%S%.f")
    return values.cast(pl.String)


@dataclass(frozen=True)
class CsvRows:
    """Where the records of a block of CSV begin, and which of them have the header's width."""

    block: bytes
    starts: np.ndarray[Any, Any]
    is_good: np.ndarray[Any, Any]
    is_blank: np.ndarray[Any, Any]

    def without_first(self) -> CsvRows:
        """The same without the first record, the header."""
        return CsvRows(self.block, self.starts[1:], self.is_good[1:], self.is_blank[1:])

    def cells(self, names: tuple[str, ...], delimiter: str) -> pl.DataFrame:
        """The good records as columns of texts, "" as NULL."""
        if not self.is_good.any():
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        if self.is_good.all():
            data = self.block[int(self.starts[0]) :]
        else:
            ends = np.append(self.starts[1:], len(self.block))
            spans = zip(self.starts[self.is_good].tolist(), ends[self.is_good].tolist(), strict=True)
            data = b"".join(self.block[start:end] for start, end in spans)
        return _parse_csv(data, names, delimiter, int(self.is_good.sum()))


def csv_rows(block: bytes, delimiter: str, width: int) -> CsvRows:
    """The records of `block`, which begins and ends with whole records; newlines inside quotes do not end one."""
    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == NEWLINE)
    separators = np.flatnonzero(data == ord(delimiter))
    if QUOTE in data:
        quotes = np.flatnonzero(data == QUOTE)
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1]) if len(ends) else np.zeros(0, dtype=np.int64)
    widths = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    bare = ends - starts
    is_blank = (bare == 0) | ((bare == 1) & (data[np.minimum(starts, len(data) - 1)] == ord("\r")))
    return CsvRows(block, starts, (widths == width) & ~is_blank, is_blank)


def _parse_csv(data: bytes, names: tuple[str, ...], delimiter: str, rows: int) -> pl.DataFrame:
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            infer_schema=False,
            new_columns=list(names),
            separator=delimiter,
            quote_char='"' if b'"' in data else None,
        )
    except pl.exceptions.ComputeError:
        frame = pl.DataFrame()
    if len(frame) == rows and frame.width == len(names):
        return frame
    text = data.decode("utf-8", errors="replace")
    parsed = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    cells = [[cell or None for cell in row[: len(names)]] for row in parsed if row]
    return pl.DataFrame(cells, schema=dict.fromkeys(names, pl.String), orient="row")
