"""Plain JSON lines as typed columns in one go, strictly: what is not exactly of the declared shape is handed back.

DuckDB reads every value as the text it is written with (another nesting, a key that stands twice and a line that is no
JSON are errors there; it is never let guess or cast), and the texts are cast strictly. A batch in which anything fails
is halved until only the odd lines are left over, for the lenient way.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from flows.reading.lines import MAX_LINE_BYTES, BareLines, LineBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Shape = dict[str, Any]
FEW_LINES = 64
"""So few lines are not halved any more."""


def typed_rows(
    batch: LineBatch | BareLines, shape: Mapping[str, pl.DataType], odd_if: Sequence[bytes] = ()
) -> tuple[pl.DataFrame | None, LineBatch]:
    """The lines of `batch` that are exactly of `shape`, with their `source_position`, and the lines that are not.

    A line that holds one of the bytes `odd_if` anywhere counts as not of the shape.
    """
    nested = {name: pl.String() if isinstance(kind, pl.Struct) else kind for name, kind in shape.items()}
    shapes = (dict(shape), nested)
    if isinstance(batch, BareLines) and not any(mark in batch.block for mark in odd_if):
        table = _read(batch.block, len(batch.positions), shapes)
        if table is not None:
            return _placed(table, batch.positions), LineBatch()
    plain, odd = _parted(batch, odd_if)
    frames: list[pl.DataFrame] = []
    pending = [(0, len(plain.lines))] if plain.lines else []
    while pending:
        first, last = pending.pop()
        table = _read(b"\n".join(plain.lines[first:last]) + b"\n", last - first, shapes)
        if table is not None:
            frames.append(_placed(table, plain.positions[first:last]))
        elif last - first <= FEW_LINES:
            odd.lines.extend(plain.lines[first:last])
            odd.positions.extend(plain.positions[first:last])
        else:
            middle = (first + last) // 2
            pending += [(middle, last), (first, middle)]
    return pl.concat(frames) if frames else None, odd


def _placed(table: pl.DataFrame, positions: list[int]) -> pl.DataFrame:
    return table.with_columns(source_position=pl.Series(positions, dtype=pl.Int64))


def _parted(batch: LineBatch | BareLines, odd_if: Sequence[bytes]) -> tuple[LineBatch, LineBatch]:
    """The lines of `batch` without and with any of the bytes `odd_if`."""
    plain, odd = LineBatch(), LineBatch()
    for line, position in zip(batch.lines, batch.positions, strict=True):
        part = odd if any(mark in line for mark in odd_if) else plain
        part.lines.append(line)
        part.positions.append(position)
    return plain, odd


def _read(block: bytes, rows: int, shapes: tuple[Shape, Shape]) -> pl.DataFrame | None:
    """Lines as columns of the first shape; those of the second have objects written as JSON texts."""
    with _in_memory(block) as path:
        table = _strictly(path, shapes[0], rows)
        if table is not None:
            return table
        table = _strictly(path, shapes[1], rows)
    return None if table is None else _with_inner(table, shapes[0])


def _strictly(path: str, shape: Shape, rows: int) -> pl.DataFrame | None:
    columns = {name: _text_type(kind) for name, kind in shape.items()}
    query = "select * from read_json($1, format = 'newline_delimited', columns = $2, maximum_object_size = $3)"
    try:
        found = _connection().sql(query, params=[path, columns, 2 * MAX_LINE_BYTES]).to_arrow_table()
        table = pl.DataFrame(found).cast(pl.Schema(shape), strict=True)
    except (duckdb.Error, UnicodeDecodeError, pl.exceptions.PolarsError):
        return None
    return table if len(table) == rows else None


def _with_inner(table: pl.DataFrame, shape: Shape) -> pl.DataFrame | None:
    """`table` with its objects that were written as JSON texts decoded; None where one is no object of its shape."""
    for name, kind in shape.items():
        if not isinstance(kind, pl.Struct):
            continue
        inner = table[name].fill_null("{}").str.replace_all("\n", " ", literal=True).replace("", "{}")
        with _in_memory(("\n".join(inner) + "\n").encode()) as path:
            decoded = _strictly(path, {field.name: field.dtype for field in kind.fields}, len(table))
        if decoded is None:
            return None
        table = table.with_columns(decoded.to_struct(name))
    return table


def _text_type(kind: Any) -> str:
    if isinstance(kind, pl.Struct):
        members = ", ".join(f'"{field.name}" {_text_type(field.dtype)}' for field in kind.fields)
        return f"STRUCT({members})"
    return f"{_text_type(kind.inner)}[]" if isinstance(kind, pl.List) else "VARCHAR"


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@contextmanager
def _in_memory(block: bytes) -> Iterator[str]:
    """Path under which the block can be read, that is gone with this process however it ends."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("lines"), "wb") as file:
            file.write(block)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(block)
        file.flush()
        yield file.name
