"""The lake on disk: Parquet per UTC date, written aside and put in place by one redoable step.

A commit writes every new file under HOME/staging/commit, then a journal HOME/lake/journal.json that lists the renames:
that rename of the journal is the moment the commit happened. Then the files are moved into place and the journal goes.
Killed before the journal stands, nothing happened; killed after it, `settle` moves the rest. So the lake is always
either as before or as after, byte for byte. Whoever reads the lake calls `settle` first, holding the home's lock.
"""

from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.canonical import SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from pathlib import Path

    from flows.home import Home

ROW_GROUP_WEIGHT = 262_144
"""A row group ends at this many rows; a row weighs one, and one more for every WEIGHT_IDS prefix-block ids."""
WEIGHT_IDS = 64
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
ENTROPIC = ("request_id", "session_id", "record_id", "prefix_block_ids.list.element")
"""Columns of mostly distinct values: a dictionary would only be tried and thrown away."""
RISING = ("arrived_at", "source_position")
"""Columns that mostly grow from row to row: their differences are small."""

REJECTS_SCHEMA: dict[str, pl.DataType] = {
    "source": pl.String(),
    "source_file": pl.String(),
    "source_position": pl.Int64(),
    "reason": pl.String(),
    "excerpt_sha256": pl.String(),
}
METADATA = {"kvledger_schema": str(SCHEMA_VERSION)}


def manifest_path(home: Home) -> Path:
    """The manifest file."""
    return home.lake / "manifest" / "files.parquet"


def requests_path(home: Home, day: str) -> Path:
    """The Parquet file of canonical rows that arrived on `day` (YYYY-MM-DD, UTC)."""
    return home.lake / "requests" / f"date={day}" / "part-0.parquet"


def rejects_path(home: Home, day: str) -> Path:
    """The Parquet file of the rejects filed under `day`."""
    return home.lake / "rejects" / f"date={day}" / "part-0.parquet"


def request_days(home: Home) -> list[str]:
    """The dates that have rows, in order."""
    return _days(home.lake / "requests")


def reject_days(home: Home) -> list[str]:
    """The dates that have rejects, in order."""
    return _days(home.lake / "rejects")


def _days(folder: Path) -> list[str]:
    return sorted(path.parent.name.removeprefix("date=") for path in folder.glob("date=*/part-0.parquet"))


@dataclass
class RequestsWriter:
    """Writes canonical rows, given in order, to one Parquet file whose row groups depend on the rows alone.

    A group is written by a thread of its own while the next one is gathered.
    """

    path: Path
    rows: int = 0
    _held: list[pl.DataFrame] = field(default_factory=list)
    _weight: float = 0.0
    _writer: Any = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _pending: Future[None] | None = None

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
        """Write what is held and end the file."""
        if self._held:
            self._hand_over()
        self._await()
        self._thread.shutdown()
        if self._writer is not None:
            self._writer.add_key_value_metadata(METADATA)
            self._writer.close()

    def _hand_over(self) -> None:
        held, self._held, self._weight = self._held, [], 0.0
        self._await()
        self._pending = self._thread.submit(self._write_group, held)
        self.rows += sum(map(len, held))

    def _await(self) -> None:
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def _write_group(self, held: list[pl.DataFrame]) -> None:
        table = _requests_table(pl.concat(held, how="diagonal"))
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self.path, table.schema, **_options(table.schema.names))
        self._writer.write_table(table, row_group_size=len(table))


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
    with pq.ParquetWriter(path, table.schema, **_options(table.schema.names)) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        writer.add_key_value_metadata(METADATA)


def _options(names: list[str]) -> dict[str, Any]:
    return {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": [name for name in names if name not in (*ENTROPIC, *RISING)],
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in RISING if name in names},
        "store_schema": False,
    }


def read_requests(home: Home, days: Iterable[str]) -> pl.LazyFrame:
    """The rows of `days`, by column name; columns the files lack are NULL."""
    paths = [requests_path(home, day) for day in days]
    if not paths:
        return pl.LazyFrame(schema=SCHEMA)
    return pl.scan_parquet(paths, schema=SCHEMA, missing_columns="insert", extra_columns="ignore")


@dataclass
class Commit:
    """New versions of lake files, written aside; `publish` puts them all in place at once."""

    home: Home
    moves: list[tuple[str, str]] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)

    def aside(self, target: Path) -> Path:
        """Where to write the new version of the lake file `target`."""
        relative = target.relative_to(self.home.lake)
        aside = self.home.staging / "commit" / relative
        aside.parent.mkdir(parents=True, exist_ok=True)
        self.moves.append((str(aside.relative_to(self.home.root)), str(target.relative_to(self.home.root))))
        return aside

    def remove(self, target: Path) -> None:
        """Note that the lake file `target` goes."""
        self.removals.append(str(target.relative_to(self.home.root)))

    def publish(self) -> None:
        """Make the commit: after this it stands, whatever happens."""
        for source, _ in self.moves:
            _sync(self.home.root / source)
        journal = self.home.lake / "journal.json"
        draft = self.home.staging / "commit" / "journal.json"
        draft.parent.mkdir(parents=True, exist_ok=True)
        self.home.lake.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps({"moves": self.moves, "removals": self.removals}), encoding="utf-8")
        _sync(draft)
        draft.replace(journal)
        _sync(self.home.lake)
        settle(self.home)


def settle(home: Home) -> None:
    """Finish the commit that a journal says has happened; nothing to do where there is none."""
    journal = home.lake / "journal.json"
    if not journal.exists():
        return
    document = json.loads(journal.read_text(encoding="utf-8"))
    touched = set()
    for source, target in document["moves"]:
        place = home.root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if (home.root / source).exists():
            (home.root / source).replace(place)
        touched.add(place.parent)
    for target in document["removals"]:
        place = home.root / target
        place.unlink(missing_ok=True)
        if place.parent.exists() and not any(place.parent.iterdir()):
            place.parent.rmdir()
        touched.add(place.parent.parent)
    for folder in touched:
        _sync(folder)
    journal.unlink()
    _sync(home.lake)


def clear_staging(home: Home) -> None:
    """Throw away what an earlier run parsed and did not commit."""
    for name in ("commit", "runs"):
        shutil.rmtree(home.staging / name, ignore_errors=True)
    home.staging.mkdir(parents=True, exist_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
