"""The Parquet files of the lake: one writer, zstd, row groups and files cut by the rows alone, the schema's number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.canonical import SCHEMA, SCHEMA_VERSION
from transforms.plausible import DURATIONS, TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future
    from pathlib import Path

ROW_GROUP_WEIGHT = 262_144
"""A row group ends at this many rows; a row weighs one, and one more for every WEIGHT_IDS prefix-block ids."""
WEIGHT_IDS = 64
FILE_GROUPS = 4
WRITERS, QUEUED_GROUPS = 2, 6
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
HEX_LEVEL = 1
"""zstd level of `request_id`: hex digits become smaller and in two thirds of the time (measured: 1.14 to 1.27 MB)."""
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


@dataclass
class RequestsWriter:
    """Writes the rows of one date, given in order, to Parquet files whose bytes depend on the rows alone.

    `path` is the first file; one of FILE_GROUPS row groups is followed by the next. Two threads write files side by
    side while the next rows are gathered. `paths` names them, in order.
    """

    path: Path
    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    _held: list[pl.DataFrame] = field(default_factory=list)
    _weight: float = 0.0
    _files: list[_File] = field(default_factory=list)
    _pending: list[Future[None]] = field(default_factory=list)
    _threads: list[ThreadPoolExecutor] = field(default_factory=lambda: [ThreadPoolExecutor(1) for _ in range(WRITERS)])

    def write(self, rows: pl.DataFrame) -> None:
        """Take the next rows; columns of SCHEMA that `rows` lacks are NULL."""
        while len(rows):
            reached = self._weight + _weights(rows)
            taken = int(np.searchsorted(reached, ROW_GROUP_WEIGHT)) + 1
            self._held.append(rows.head(taken))
            self._weight = float(reached[min(taken, len(rows)) - 1])
            rows = rows.slice(taken)
            if self._weight >= ROW_GROUP_WEIGHT:
                self._hand_over()

    def close(self) -> None:
        """Write what is held and end the last file."""
        if self._held:
            self._hand_over()
        for thread in self._threads:
            thread.shutdown()
        for future in self._pending:
            future.result()
        if self._files:
            self._files[-1].close()

    def _hand_over(self) -> None:
        """Give the held rows to the thread that writes their file."""
        held, self._held, self._weight = self._held, [], 0.0
        self.rows += sum(map(len, held))
        if not self._files or self._files[-1].groups == FILE_GROUPS:
            self.paths.append(self.path.with_name(f"part-{len(self.paths)}.parquet"))
            self._files = [_File(self.paths[-1])]
        while len(self._pending) >= QUEUED_GROUPS:
            self._pending.pop(0).result()
        file = self._files[-1]
        file.groups += 1
        is_last = file.groups == FILE_GROUPS
        self._pending.append(self._threads[len(self.paths) % WRITERS].submit(file.write, held, is_last=is_last))


@dataclass
class _File:
    """One file of a date while it is written."""

    path: Path
    groups: int = 0
    writer: Any = None

    def write(self, held: list[pl.DataFrame], *, is_last: bool) -> None:
        """Write one row group, and end the file with the last one it may have."""
        table = _requests_table(pl.concat(held, how="diagonal"))
        if self.writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.writer = pq.ParquetWriter(self.path, table.schema, **_options(table.schema.names, ENCODINGS))
        self.writer.write_table(table, row_group_size=len(table))
        if is_last:
            self.close()

    def close(self) -> None:
        """End the file; once is enough."""
        if self.writer is not None and self.writer.is_open:
            self.writer.add_key_value_metadata(METADATA)
            self.writer.close()


def _weights(rows: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Running weight of the rows."""
    if "prefix_block_ids" not in rows.columns:
        return np.arange(1, len(rows) + 1, dtype=np.float64)
    ids = rows["prefix_block_ids"].list.len().fill_null(0).to_numpy()
    return np.cumsum(1 + ids / WEIGHT_IDS)


def _requests_table(rows: pl.DataFrame) -> pa.Table:
    """The rows as Arrow columns in the lake's order, few-valued texts as dictionaries."""
    columns: list[Any] = []
    for name, kind in REQUESTS_SCHEMA.items():
        if name not in rows.columns or rows[name].null_count() == len(rows):
            columns.append(pa.nulls(len(rows), cast("Any", kind)))
        elif name in FEW_VALUED:
            columns.append(_dictionary(rows[name]))
        else:
            columns.append(rows[name].to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind))
    return pa.table(columns, schema=pa.schema(list(REQUESTS_SCHEMA.items())))


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
REQUESTS_SCHEMA = _arrow_types()


def write_table(rows: pl.DataFrame, path: Path) -> None:
    """Write a small table (rejects, manifest) as one row group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pq.ParquetWriter(path, table.schema, **_options(table.schema.names, {})) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        writer.add_key_value_metadata(METADATA)


def _options(names: list[str], encodings: Mapping[str, str]) -> dict[str, Any]:
    return {
        "compression": COMPRESSION,
        "compression_level": {n: HEX_LEVEL if n == "request_id" else COMPRESSION_LEVEL for n in names},
        "use_dictionary": [name for name in names if name not in ENTROPIC and name not in encodings],
        "column_encoding": dict(encodings),
        "write_statistics": STATISTICS,
        "store_schema": False,
    }
