"""Records of a file as columns of cells, for the formats read by a mapping: JSON lines, CSV and Parquet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from flows.reading.cells import CellDecoder
from flows.reading.csv_rows import CsvRows, check_columns_once, csv_rows
from flows.reading.lines import BOM, clean
from flows.reading.nested import column_of, columns_of, field_cells
from transforms.batches import Reject, Table
from transforms.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from flows.reading.lines import BareLines, LineBatch
    from flows.reading.records import RecordStream
    from transforms.mapping import FieldMap

PARQUET_ROWS = 65_536
LACKS_COLUMN = "has no column"
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
            if column_of(name, known) is None:
                listed = ", ".join(known[:12])
                raise InputError(f"{LACKS_COLUMN} '{name}'{nearest(name, known)} (its columns: {listed})")
        check_columns_once(known, columns_of(self.mapping.fields, known))

    def _json_table(self, decoder: CellDecoder, batch: LineBatch | BareLines) -> TableBatch:
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
        integers = self.mapping.whole_fields
        is_headed = self.records.start == 0
        for whole, position in self.records.csv_blocks():
            begin = whole.find(b"\n") + 1 if is_headed else 0
            self.records.ignored += is_headed
            is_headed = False
            if block := whole[begin:]:
                rows = csv_rows(block, self.records.seen.delimiter, names, integers)
                yield self._csv_table(rows, block, position + begin)

    def _csv_table(self, rows: CsvRows, block: bytes, position: int) -> TableBatch:
        cells = pl.DataFrame([field_cells(rows.cells, name) for name in self.mapping.fields])
        headers = _headers(rows.cells)
        starts = rows.spans.starts + position
        is_whole = bool(rows.spans.is_good.all())
        good = starts if is_whole else starts[rows.spans.is_good]
        positions = pl.Series("source_position", good, dtype=pl.Int64)
        if headers is not None:
            self.records.ignored += int(headers.sum())
            cells, positions = cells.filter(~headers), positions.filter(~headers)
        table = Table(self.source_file, cells, positions, is_json=False, carry=self.carry)
        bad = () if is_whole else starts[~rows.spans.is_good & ~rows.spans.is_blank]
        rejects = [Reject(int(p), WRONG_WIDTH) for p in bad]

        def raw(start: int) -> bytes:
            following = starts[np.searchsorted(starts, start) + 1 :]
            end = int(following[0]) - position if len(following) else len(block)
            return clean(block[start - position : end])

        return TableBatch(table, raw, rejects, int(rows.spans.is_blank.sum()))

    def _parquet_tables(self) -> Iterator[TableBatch]:
        known = self.records.seen.columns
        wanted = columns_of(self.mapping.fields, known)
        row = 0
        for batch in _batches(self.records.seen.path, wanted):
            typed = pl.DataFrame(batch)
            cells = typed.select(_cell_text(typed[name]) for name in wanted)
            fields = pl.DataFrame([field_cells(cells, name) for name in self.mapping.fields])
            positions = pl.int_range(row, row + len(typed), eager=True).alias("source_position")
            row += len(typed)
            yield TableBatch(
                Table(self.source_file, fields, positions, is_json=False, carry=self.carry),
                lambda position: str(position).encode(),
            )


def _headers(cells: pl.DataFrame) -> pl.Series | None:
    """Which rows say the header again, as where files were put one behind the other; None where none does."""
    first, *others = cells.columns
    if any(dtype != pl.String for dtype in cells.dtypes) or not cells[first].str.contains(first, literal=True).any():
        return None
    says = cells[first].str.strip_prefix(BOM.decode()).str.strip_chars() == first
    for name in others if says.any() else ():
        says &= cells[name].str.strip_chars() == name
    return says.fill_null(value=False) if says.any() else None


def _batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of a Parquet file; InputError where its pages are damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield from pq.ParquetFile(path).iter_batches(PARQUET_ROWS, columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise InputError("looks like Parquet but cannot be read; was it written whole?") from error


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
    if isinstance(values.dtype, pl.Struct):
        return values.struct.json_encode()
    return values.cast(pl.String)
