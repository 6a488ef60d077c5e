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

from flows.lake_chunks import (
    COLUMN_BYTES,
    ENCODINGS,
    FEW_VALUED,
    GROUP_BYTES,
    GROUP_COLUMNS,
    GROUP_COMPRESSED_BYTES,
    GROUP_ROWS,
    GROUP_START,
    METADATA,
    NUM_ROWS,
    REQUESTS,
    REQUESTS_SCHEMA,
    ROW_GROUPS,
    Chunk,
    chunks,
    options,
)
from flows.lake_ids import ids_chunk
from flows.parquet_footer import I64, LIST, MAGIC, STRUCT, footer_bytes, footer_of
from transforms.canonical import SCHEMA
from transforms.identity import id_bytes, id_texts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.parquet_footer import Struct

CHUNKS_KEPT = 512
"""Chunks of one value that are kept: some 30 for each size of row group."""


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
        made = _chunks_of_rows(rows, constants)
        start = at = self.file.tell()
        columns = []
        for chunk in made:
            columns.append(chunk.placed(at))
            self.file.write(chunk.body)
            at += len(chunk.body)
        self.groups.append({
            GROUP_COLUMNS: (LIST, (STRUCT, columns)),
            GROUP_BYTES: (I64, sum(chunk.size(COLUMN_BYTES) for chunk in made)),
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
    told: dict[str, Chunk] = {}
    if "content_id" in rows.columns and rows["content_id"].null_count() < len(rows):
        made.pop("request_id", None)
        told["request_id"] = _ids(rows)
    schema = pa.schema([(name, REQUESTS_SCHEMA[name]) for name in made])
    told |= zip(made, chunks(pa.table(made, schema=schema)), strict=True)
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
    return chunks(pa.table({name: array}, schema=pa.schema([(name, REQUESTS_SCHEMA[name])])))[0]


@lru_cache(maxsize=1)
def _empty_footer() -> Struct:
    """The footer of a file of the lake without rows."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, REQUESTS, **options(REQUESTS.names, ENCODINGS)) as writer:
        writer.add_key_value_metadata(METADATA)
    return footer_of(buffer.getvalue())


def _ids(rows: pl.DataFrame) -> Chunk:
    """The chunk of the ids: of a row with a `content_id` made of it, as the first of its content; else its own."""
    contents = rows["content_id"]
    own = rows["request_id"] if contents.null_count() else None
    ids = id_bytes(contents, own)
    chunk = None if ids is None else ids_chunk(ids)
    if chunk is not None:
        return chunk
    texts = id_texts(id_bytes(contents))
    if own is not None:
        is_own = contents.is_null().to_arrow(compat_level=pl.CompatLevel.oldest())
        texts = pc.if_else(is_own, _array(own, REQUESTS_SCHEMA["request_id"]), texts)
    return chunks(pa.table({"request_id": texts}))[0]


def _array(values: pl.Series, kind: pa.DataType) -> Any:
    return values.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)


def _dictionary(values: pl.Series) -> Any:
    first = values[0]
    if first is not None and (values == first).all() and not values.null_count():
        codes = np.zeros(len(values), dtype=np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array([first], pa.large_string()))
    return values.to_arrow(compat_level=pl.CompatLevel.oldest()).dictionary_encode()
