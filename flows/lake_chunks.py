"""Column chunks of the lake's Parquet files as Arrow encodes them, apart from the files they go into."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.parquet_footer import I64, footer_of
from transforms.canonical import SCHEMA, SCHEMA_VERSION
from transforms.plausible import DURATIONS, TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flows.parquet_footer import Struct

FAST_LEVEL = 1
"""zstd level of columns with an encoding of their own: few bits do not become fewer at a higher one, and hex digits (of
`request_id`) become smaller and in two thirds of the time (measured: 1.14 to 1.27 MB)."""
COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL = 3
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


def chunks(table: pa.Table) -> list[Chunk]:
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
