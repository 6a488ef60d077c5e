"""Blocks of CSV as records: where each begins and, for the columnar reader, their cells."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    Places = np.ndarray[Any, Any]

QUOTE, NEWLINE = 34, 10


@dataclass(frozen=True)
class CsvSpans:
    """Where the records of a block begin and end (before the line end), and which are good: of the header's width."""

    starts: Places
    ends: Places
    is_good: Places
    is_blank: Places


@dataclass(frozen=True)
class CsvRows:
    """The records of a block and the cells of the good ones."""

    spans: CsvSpans
    cells: pl.DataFrame


def csv_rows(block: bytes, delimiter: str, names: tuple[str, ...], whole: Container[str] = ()) -> CsvRows:
    """The records of `block`, which begins and ends with whole records, as columns of texts ("" is NULL).

    The columns `whole` are integers where the block is plain and all their cells are whole numbers. A name that comes
    again is that of no column here.
    """
    names = _distinct(names)
    if b'"' not in block:
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        starts = _starts(ends)
        cells = _plainly(block, names, delimiter, len(ends), whole=whole)
        if cells is not None and (_is_full(cells) or _is_even(data, starts, ends, delimiter, len(names))):
            every = np.ones(len(ends), dtype=bool)
            return CsvRows(CsvSpans(starts, ends, every, ~every), cells)
    spans = csv_spans(block, delimiter, len(names))
    places = zip(spans.starts[spans.is_good].tolist(), spans.ends[spans.is_good].tolist(), strict=True)
    good = b"".join(block[start : end + 1] for start, end in places)
    cells = _strictly(good, names, delimiter, int(spans.is_good.sum()))
    return _one_by_one(block, spans, names, delimiter) if cells is None else CsvRows(spans, cells)


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, with those that stood before or are empty replaced by ones that no field has."""
    return tuple(name if name and name not in names[:n] else f"\0{n}" for n, name in enumerate(names))


def check_columns_once(names: Sequence[str], wanted: Container[str]) -> None:
    """InputError where a header has one of the columns `wanted` more than once: which of them is meant is not known."""
    for n, name in enumerate(names):
        if name and name in names[:n] and name in wanted:
            raise InputError(f"has two columns '{name}'; name one of them otherwise")


def _is_full(cells: pl.DataFrame) -> bool:
    """Whether no cell is NULL: Polars fills records that are too short, and refuses those that are too long."""
    return not any(column.null_count() for column in cells.get_columns())


def _is_even(data: Places, starts: Places, ends: Places, delimiter: str, width: int) -> bool:
    """Whether no record is blank and, all in all, there are as many separators as records of `width` cells have."""
    separators = np.count_nonzero(data == ord(delimiter))
    return separators == len(ends) * (width - 1) and int((ends - starts).min()) > 1


def csv_spans(block: bytes, delimiter: str, width: int) -> CsvSpans:
    """The records of `block`, of which good ones have `width` fields; line ends inside quotes do not end one."""
    data = np.frombuffer(block, dtype=np.uint8)
    quotes, ends, separators = (np.flatnonzero(data == byte) for byte in (QUOTE, NEWLINE, ord(delimiter)))
    ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
    separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
    starts = _starts(ends)
    widths = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    bare = ends - starts
    is_blank = (bare == 0) | ((bare == 1) & (data[np.minimum(starts, len(data) - 1)] == ord("\r")))
    return CsvSpans(starts, ends, (widths == width) & ~is_blank, is_blank)


def _starts(ends: Places) -> Places:
    return np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1] + 1]) if len(ends) else ends


def _plainly(
    data: bytes, names: tuple[str, ...], delimiter: str, rows: int, *, whole: Container[str]
) -> pl.DataFrame | None:
    """`_strictly`, with integers in the columns `whole` where Polars finds nothing else in them."""
    schema = {name: pl.Int64() if name in whole else pl.String() for name in names}
    try:
        frame = pl.read_csv(data, has_header=False, schema=schema, separator=delimiter, quote_char=None)
    except pl.exceptions.PolarsError:
        return _strictly(data, names, delimiter, rows)
    is_right = len(frame) == rows and frame.width == len(names)
    return frame if is_right else _strictly(data, names, delimiter, rows)


def _strictly(data: bytes, names: tuple[str, ...], delimiter: str, rows: int) -> pl.DataFrame | None:
    """So many records as columns of texts; None where Polars finds another number of records or fields."""
    if not rows:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            infer_schema=False,
            new_columns=list(names),
            separator=delimiter,
            quote_char='"' if b'"' in data else None,
        )
    except pl.exceptions.PolarsError:
        return None
    return frame if len(frame) == rows and frame.width == len(names) else None


def _one_by_one(block: bytes, spans: CsvSpans, names: tuple[str, ...], delimiter: str) -> CsvRows:
    """The records, each read on its own; one that is several to a reader (a quote inside a bare field) is not good."""
    is_good, rows = spans.is_good.copy(), []
    for place in np.flatnonzero(is_good).tolist():
        text = block[spans.starts[place] : spans.ends[place] + 1].decode("utf-8", errors="replace")
        try:
            parsed = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        except csv.Error:
            parsed = []
        if len(parsed) == 1 and len(parsed[0]) == len(names):
            rows.append([cell or None for cell in parsed[0]])
        else:
            is_good[place] = False
    cells = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    return CsvRows(replace(spans, is_good=is_good), cells)
