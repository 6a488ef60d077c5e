"""The Parquet files of the lake: one writer, zstd, row groups and files cut by the rows alone, the schema's number."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from flows.lake_chunks import METADATA, options
from flows.lake_columns import LakeFile
from transforms.canonical import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

ROW_GROUP_WEIGHT = 262_144
"""A row group ends at this many rows; a row weighs one, and one more for every WEIGHT_IDS prefix-block ids."""
WEIGHT_IDS = 64
FILE_GROUPS = 4
WRITERS, QUEUED_GROUPS = 2, 6

NO_CONSTANTS: Mapping[str, Any] = MappingProxyType({})
Held = list[tuple[pl.DataFrame, "Mapping[str, Any]"]]


@dataclass
class RequestsWriter:
    """Writes the rows of one date, given in order, to Parquet files whose bytes depend on the rows alone.

    `path` is the first file; one of FILE_GROUPS row groups is followed by the next. Two threads write files side by
    side while the next rows are gathered. `paths` names them, in order.
    """

    path: Path
    paths: list[Path] = field(default_factory=list)
    rows: int = 0
    _held: Held = field(default_factory=list)
    _weight: float = 0.0
    _file: LakeFile | None = None
    _groups: int = 0
    _pending: list[Future[None]] = field(default_factory=list)
    _threads: list[ThreadPoolExecutor] = field(default_factory=lambda: [ThreadPoolExecutor(1) for _ in range(WRITERS)])

    def write(self, rows: pl.DataFrame, constants: Mapping[str, Any] = NO_CONSTANTS) -> None:
        """Take the next rows, whose columns `constants` have one value and need not be there; others are NULL.

        Rows with a `content_id` get the id that it makes.
        """
        while len(rows):
            reached = self._weight + _weights(rows)
            taken = int(np.searchsorted(reached, ROW_GROUP_WEIGHT)) + 1
            self._held.append((rows.head(taken), constants))
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
        if self._file is not None:
            self._file.close()

    def _hand_over(self) -> None:
        """Give the held rows to the thread that writes their file."""
        held, self._held, self._weight = self._held, [], 0.0
        self.rows += sum(len(rows) for rows, _ in held)
        if self._file is None or self._groups == FILE_GROUPS:
            self.paths.append(self.path.with_name(f"part-{len(self.paths)}.parquet"))
            self._file, self._groups = LakeFile(self.paths[-1]), 0
        while len(self._pending) >= QUEUED_GROUPS:
            self._pending.pop(0).result()
        self._groups += 1
        thread = self._threads[len(self.paths) % WRITERS]
        self._pending.append(thread.submit(_write_group, self._file, held, is_last=self._groups == FILE_GROUPS))


def _write_group(file: LakeFile, held: Held, *, is_last: bool) -> None:
    """Write one row group, and end the file with the last one it may have."""
    shared = shared_constants([constants for _, constants in held])
    frames = [with_constants(rows, without(constants, shared)) for rows, constants in held]
    file.write(pl.concat(frames, how="diagonal"), shared)
    if is_last:
        file.close()


def shared_constants(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The constants that are among each of `every` with one value."""
    return {name: value for name, value in every[0].items() if all(name in one and one[name] == value for one in every)}


def without(constants: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """`constants` but those of `names`."""
    return {name: value for name, value in constants.items() if name not in names}


def with_constants(rows: pl.DataFrame, constants: Mapping[str, Any]) -> pl.DataFrame:
    """`rows` with these columns of one value each."""
    return rows.with_columns(pl.lit(value, dtype=SCHEMA[name]).alias(name) for name, value in constants.items())


def _weights(rows: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Running weight of the rows."""
    if "prefix_block_ids" not in rows.columns:
        return np.arange(1, len(rows) + 1, dtype=np.float64)
    ids = rows["prefix_block_ids"].list.len().fill_null(0).to_numpy()
    return np.cumsum(1 + ids / WEIGHT_IDS)


def write_table(rows: pl.DataFrame, path: Path) -> None:
    """Write a small table (rejects, manifest) as one row group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pq.ParquetWriter(path, table.schema, **options(table.schema.names, {})) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        writer.add_key_value_metadata(METADATA)
