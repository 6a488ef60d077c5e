"""Column chunks of the lake's Parquet files, and files put together from them.

Arrow takes 6 to 18 ns for each row of a column that is all NULL or all one value: for 27 such columns as much as for
the five of `azure` that say something. The chunk of such a column depends on its name, value and number of rows alone:
it is encoded once and copied into every row group of that size. The files are those that Arrow would have written.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from flows.parquet_footer import I64, LIST, MAGIC, STRUCT, footer_bytes, footer_of
from transforms.canonical import SCHEMA, SCHEMA_VERSION
from transforms.identity import request_id_texts
from transforms.plausible import DURATIONS, TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.parquet_footer import Struct

CHUNKS_KEPT = 512
"""Chunks of one value that are kept: some 30 for each size of row group."""
FAST_LEVEL = 1
"""zstd level of columns with an encoding of their own: few bits do not become fewer at a higher one, and hex digits (of
`request_id`) become smaller and in two thirds of the time (measured: 1.14 to 1.27 MB)."""
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
ENTROPIC = ("session_id", "record_id", "prefix_block_ids.list.element")
"""Columns of mostly distinct values: a dictionary would only be tried and thrown away."""
ENCODINGS = {
    "request_id": "DELTA_LENGTH_BYTE_ARRAY",
    **dict.fromkeys(("arrived_at", "source_position", *TOKENS), "DELTA_BINARY_PACKED"),
    **dict.fromkeys(DURATIONS, "BYTE_STREAM_SPLIT"),
}
"""Of columns of mostly distinct values that have a better encoding than plain: a third of the time of a dictionary that
is tried and thrown away (measured on `azure`: 0.68 to 0.37 us per row for all columns, the file 5 % larger)."""
STATISTICS = ["arrived_at"]
"""The one column whose least and greatest value in a row group is looked at; the others took a sixth of the time."""
METADATA = {"kvledger_schema": str(SCHEMA_VERSION)}
FEW_VALUED = (
    "model",
    "tenant",
    "operation",
    "served_by",
    "replica_id",
    "status",
    "finish_reason",
    "source",
    "source_file",
)

NUM_ROWS, ROW_GROUPS = 3, 4
GROUP_COLUMNS, GROUP_BYTES, GROUP_ROWS, GROUP_START, GROUP_COMPRESSED_BYTES = 1, 2, 3, 5, 6
COLUMN_META, COLUMN_BYTES, COLUMN_COMPRESSED_BYTES = 3, 6, 7
PAGE_STARTS = (9, 11)
"""Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData (parquet.thrift)."""


@dataclass(frozen=True)
class Chunk:
    """The encoded bytes of one column of one row group, and its ColumnChunk as if they began at byte 0 of a file."""

    body: bytes
    column: Struct

    def placed(self, start: int) -> Struct:
        """Its ColumnChunk where the bytes begin at byte `start`."""
        return _moved(self.column, start)

    def size(self, number: int) -> int:
        """COLUMN_BYTES or COLUMN_COMPRESSED_BYTES."""
        return int(self.column[COLUMN_META][1][number][1])


@dataclass
class LakeFile:
    """One Parquet file of a date while it is written, row group by row group."""

    path: Path
    rows: int = 0
    groups: list[Struct] = field(default_factory=list)
    file: IO[bytes] | None = None

    def write(self, rows: pl.DataFrame, constants: Mapping[str, Any]) -> None:
        """Write one row group of `rows`, whose columns `constants` have one value; what is in neither is NULL."""
        if self.file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("wb")
            self.file.write(MAGIC)
        chunks = _chunks_of_rows(rows, constants)
        start = at = self.file.tell()
        columns = []
        for chunk in chunks:
            columns.append(chunk.placed(at))
            self.file.write(chunk.body)
            at += len(chunk.body)
        self.groups.append({
            GROUP_COLUMNS: (LIST, (STRUCT, columns)),
            GROUP_BYTES: (I64, sum(chunk.size(COLUMN_BYTES) for chunk in chunks)),
            GROUP_ROWS: (I64, len(rows)),
            GROUP_START: (I64, start),
            GROUP_COMPRESSED_BYTES: (I64, at - start),
        })  # fmt: skip
        self.rows += len(rows)

    def close(self) -> None:
        """End the file with its footer; once is enough."""
        if self.file is None or self.file.closed:
            return
        footer = {**_empty_footer(), NUM_ROWS: (I64, self.rows), ROW_GROUPS: (LIST, (STRUCT, self.groups))}
        self.file.write(footer_bytes(footer))
        self.file.close()


def _chunks_of_rows(rows: pl.DataFrame, constants: Mapping[str, Any]) -> list[Chunk]:
    """The chunks of all columns of the lake, in its order."""
    made: dict[str, Any] = {}
    for name in rows.columns:
        if name in REQUESTS_SCHEMA and rows[name].null_count() < len(rows):
            made[name] = _dictionary(rows[name]) if name in FEW_VALUED else _array(rows[name], REQUESTS_SCHEMA[name])
    if "content_id" in rows.columns and rows["content_id"].null_count() < len(rows):
        made["request_id"] = _ids(rows)
    schema = pa.schema([(name, REQUESTS_SCHEMA[name]) for name in made])
    told = dict(zip(made, _chunks(pa.table(made, schema=schema)), strict=True))
    for name in REQUESTS_SCHEMA:
        if name not in told:
            value = constants.get(name)
            told[name] = _constant_chunk(name, () if isinstance(value, list) else value, len(rows))
    return [told[name] for name in REQUESTS_SCHEMA]


@lru_cache(maxsize=CHUNKS_KEPT)
def _constant_chunk(name: str, value: Any, rows: int) -> Chunk:
    """The chunk of a column that has one value in so many rows: None, or () for an empty list."""
    if value is None:
        array = pa.nulls(rows, cast("Any", REQUESTS_SCHEMA[name]))
    else:
        values = pl.Series([list(value) if value == () else value], dtype=SCHEMA[name]).new_from_index(0, rows)
        array = _dictionary(values) if name in FEW_VALUED else _array(values, REQUESTS_SCHEMA[name])
    return _chunks(pa.table({name: array}, schema=pa.schema([(name, REQUESTS_SCHEMA[name])])))[0]


def _chunks(table: pa.Table) -> list[Chunk]:
    """The chunks of a table's columns, as Arrow writes them."""
    if not table.num_columns:
        return []
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, **options(table.schema.names, ENCODINGS)) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    file = buffer.getbuffer()
    group = footer_of(file)[ROW_GROUPS][1][1][0]
    return [_chunk(file, column) for column in group[GROUP_COLUMNS][1][1]]


def _chunk(file: memoryview, column: Struct) -> Chunk:
    meta = column[COLUMN_META][1]
    start = min(meta[number][1] for number in PAGE_STARTS if number in meta)
    return Chunk(bytes(file[start : start + meta[COLUMN_COMPRESSED_BYTES][1]]), _moved(column, -start))


def _moved(column: Struct, by_bytes: int) -> Struct:
    """A ColumnChunk whose pages begin so much further on."""
    kind, meta = column[COLUMN_META]
    moved = {number: (I64, meta[number][1] + by_bytes) for number in PAGE_STARTS if number in meta}
    return {**column, COLUMN_META: (kind, {**meta, **moved})}


@lru_cache(maxsize=1)
def _empty_footer() -> Struct:
    """The footer of a file of the lake without rows."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, REQUESTS, **options(REQUESTS.names, ENCODINGS)) as writer:
        writer.add_key_value_metadata(METADATA)
    return footer_of(buffer.getvalue())


def _ids(rows: pl.DataFrame) -> Any:
    """The ids of rows: where there is a `content_id`, made of it, for a row that is the first of its content."""
    contents = rows["content_id"]
    ids = request_id_texts(contents)
    if not contents.null_count():
        return ids
    own = _array(rows["request_id"], REQUESTS_SCHEMA["request_id"])
    is_own = contents.is_null().to_arrow(compat_level=pl.CompatLevel.oldest())
    return pc.if_else(is_own, own, ids)


def _array(values: pl.Series, kind: pa.DataType) -> Any:
    return values.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)


def _dictionary(values: pl.Series) -> Any:
    first = values[0]
    if first is not None and (values == first).all() and not values.null_count():
        codes = np.zeros(len(values), dtype=np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array([first], pa.large_string()))
    return values.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()


def _arrow_types() -> dict[str, pa.DataType]:
    plain = pl.DataFrame(schema=SCHEMA).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    few = pa.dictionary(pa.int32(), pa.large_string())
    return {field.name: few if field.name in FEW_VALUED else field.type for field in plain}


REQUESTS_SCHEMA = _arrow_types()
REQUESTS = pa.schema(list(REQUESTS_SCHEMA.items()))


def options(names: list[str], encodings: Mapping[str, str]) -> dict[str, Any]:
    """What Arrow's writer is told for a table of these columns."""
    return {
        "compression": COMPRESSION,
        "compression_level": {n: FAST_LEVEL if n in encodings else COMPRESSION_LEVEL for n in names},
        "use_dictionary": [name for name in names if name not in ENTROPIC and name not in encodings],
        "column_encoding": {name: kind for name, kind in encodings.items() if name in names},
        "write_statistics": STATISTICS,
        "store_schema": False,
    }
