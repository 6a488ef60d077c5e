"""Plain JSON lines as typed columns in one go, strictly: what is not exactly of the declared shape is handed back.

Arrow's reader refuses a batch in which any value has another type, a key stands twice or a line is no JSON (measured;
it never casts); such a batch is halved until only the odd lines are left over, for the lenient way.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.json as pj

from flows.reading.lines import LineBatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FEW_LINES = 64
"""So few lines are not halved any more."""
_TYPES: dict[Any, pa.DataType] = {pl.String: pa.string(), pl.Int64: pa.int64(), pl.Float64: pa.float64()}


def typed_rows(
    batch: LineBatch, shape: Mapping[str, pl.DataType], odd_if: Sequence[bytes] = ()
) -> tuple[pl.DataFrame | None, LineBatch]:
    """The lines of `batch` that are exactly of `shape`, with their `source_position`, and the lines that are not.

    A line that holds one of the bytes `odd_if` anywhere counts as not of the shape.
    """
    plain, odd = _parted(batch, odd_if)
    frames: list[pl.DataFrame] = []
    schemas = (_schema(shape), _schema({n: pl.String() if isinstance(t, pl.Struct) else t for n, t in shape.items()}))
    pending = [(0, len(plain.lines))]
    while pending:
        first, last = pending.pop()
        table = _read(plain.lines[first:last], schemas, shape)
        if table is not None:
            frames.append(table.with_columns(source_position=pl.Series(plain.positions[first:last], dtype=pl.Int64)))
        elif last - first <= FEW_LINES:
            odd.lines.extend(plain.lines[first:last])
            odd.positions.extend(plain.positions[first:last])
        else:
            middle = (first + last) // 2
            pending += [(middle, last), (first, middle)]
    return pl.concat(frames) if frames else None, odd


def _parted(batch: LineBatch, odd_if: Sequence[bytes]) -> tuple[LineBatch, LineBatch]:
    """The lines of `batch` without and with any of the bytes `odd_if`."""
    plain, odd = LineBatch(), LineBatch()
    if not any(mark in line for mark in odd_if for line in batch.lines):
        return batch, odd
    for line, position in zip(batch.lines, batch.positions, strict=True):
        part = odd if any(mark in line for mark in odd_if) else plain
        part.lines.append(line)
        part.positions.append(position)
    return plain, odd


def _read(
    lines: list[bytes], schemas: tuple[pa.Schema, pa.Schema], shape: Mapping[str, pl.DataType]
) -> pl.DataFrame | None:
    block = b"\n".join(lines) + b"\n"
    if not lines or not _is_text(block):
        return None
    for schema in schemas:
        table = _strictly(block, schema)
        if table is not None and len(table) == len(lines):
            return _with_inner(table, shape) if schema is schemas[1] else table
    return None


def _strictly(block: bytes, schema: pa.Schema) -> pl.DataFrame | None:
    options = pj.ParseOptions(explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="ignore")
    whole = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    source = cast("IO[bytes]", pa.BufferReader(block))
    try:
        return pl.DataFrame(pj.read_json(source, read_options=whole, parse_options=options))
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None


def _with_inner(table: pl.DataFrame, shape: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    """`table` with its objects that were written as JSON texts decoded; None where one is no object of its shape."""
    for name, kind in shape.items():
        if not isinstance(kind, pl.Struct):
            continue
        inner = table[name].fill_null("{}").str.replace_all("\n", " ", literal=True)
        inner = inner.replace("", "{}")
        block = ("\n".join(inner) + "\n").encode()
        decoded = _strictly(block, _schema({field.name: field.dtype for field in kind.fields}))
        if decoded is None or len(decoded) != len(table):
            return None
        table = table.with_columns(decoded.to_struct(name))
    return table


def _is_text(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _schema(shape: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([(name, _arrow_type(kind)) for name, kind in shape.items()])


def _arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, pl.Struct):
        return pa.struct([(field.name, _arrow_type(field.dtype)) for field in kind.fields])
    if isinstance(kind, pl.List):
        return pa.list_(_arrow_type(kind.inner))
    return next(arrow for plain, arrow in _TYPES.items() if kind == plain)
