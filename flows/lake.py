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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.canonical import SCHEMA, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from flows.home import Home

ROW_GROUP_WEIGHT = 131_072
"""A row group ends at this many rows; a row weighs one, and one more for every WEIGHT_IDS prefix-block ids."""
WEIGHT_IDS = 64
COMPRESSION, COMPRESSION_LEVEL = "zstd", 3
ENTROPIC = ("request_id", "session_id", "record_id", "source_position", "arrived_at", "prefix_block_ids.list.element")
"""Columns of mostly distinct values: a dictionary would only be tried and thrown away."""

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
    """Writes canonical rows, given in order, to one Parquet file whose row groups depend on the rows alone."""

    path: Path
    rows: int = 0
    _held: list[pl.DataFrame] = field(default_factory=list)
    _weight: float = 0.0
    _writer: Any = None

    def write(self, rows: pl.DataFrame) -> None:
        """Take the next rows (all columns of SCHEMA, in its order)."""
        while len(rows):
            ids = rows["prefix_block_ids"].list.len().fill_null(0)
            reached = (1 + ids.cast(pl.Float64) / WEIGHT_IDS).cum_sum() + self._weight
            taken = int((reached < ROW_GROUP_WEIGHT).sum()) + 1
            self._held.append(rows.head(taken))
            self._weight = float(reached[min(taken, len(rows)) - 1])
            rows = rows.slice(taken)
            if self._weight >= ROW_GROUP_WEIGHT:
                self._write_group()

    def close(self) -> None:
        """Write what is held and end the file."""
        if self._held:
            self._write_group()
        if self._writer is not None:
            self._writer.add_key_value_metadata(METADATA)
            self._writer.close()

    def _write_group(self) -> None:
        table = _arrow(pl.concat(self._held))
        if self._writer is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self.path, table.schema, **_options(table.schema.names))
        self._writer.write_table(table, row_group_size=len(table))
        self.rows += len(table)
        self._held, self._weight = [], 0.0


def write_table(rows: pl.DataFrame, path: Path) -> None:
    """Write a small table (rejects, manifest) as one row group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = _arrow(rows)
    with pq.ParquetWriter(path, table.schema, **_options(table.schema.names)) as writer:
        writer.write_table(table, row_group_size=max(len(table), 1))
        writer.add_key_value_metadata(METADATA)


def _arrow(rows: pl.DataFrame) -> pa.Table:
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest())


def _options(names: list[str]) -> dict[str, Any]:
    return {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": [name for name in names if name not in ENTROPIC],
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
