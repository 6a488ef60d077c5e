"""The manifest of the lake: one row per source file with what was read of it and where a later run goes on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

GENERATION = "~"
"""`app.jsonl~2` is the second content under that name: what a rotation put in the place of the first."""


@dataclass(frozen=True)
class Entry:
    """One source file of the lake. `read_rows = loaded_rows + duplicates_rows + rejected_rows`."""

    source: str
    source_file: str
    sha256: str
    """Of the first `size_bytes` of the file as it lies there (compressed, if it is)."""

    size_bytes: int
    settings_id: str
    """Hash of the format's settings and mapping it was read with."""

    status: str
    read: int
    loaded: int
    duplicates: int
    rejected: int
    ignored: int
    first_arrived_at: datetime | None
    last_arrived_at: datetime | None
    next_offset: int
    """Byte of the decompressed stream at which nothing was taken yet."""

    is_resumable: bool
    """Whether a later run may go on at `next_offset`; else a file that grew is read anew."""


SCHEMA: dict[str, pl.DataType] = {
    "source": pl.String(),
    "source_file": pl.String(),
    "sha256": pl.String(),
    "size_bytes": pl.Int64(),
    "settings_id": pl.String(),
    "status": pl.String(),
    "read": pl.Int64(),
    "loaded": pl.Int64(),
    "duplicates": pl.Int64(),
    "rejected": pl.Int64(),
    "ignored": pl.Int64(),
    "first_arrived_at": pl.Datetime("us", "UTC"),
    "last_arrived_at": pl.Datetime("us", "UTC"),
    "next_offset": pl.Int64(),
    "is_resumable": pl.Boolean(),
}
FIELDS = tuple(f.name for f in fields(Entry))


def read_manifest(path: Path) -> dict[tuple[str, str], Entry]:
    """The entries at `path` by (source, source_file); empty where there is no manifest yet."""
    if not path.exists():
        return {}
    rows = pl.read_parquet(path, columns=list(FIELDS)).to_dicts()
    return {(row["source"], row["source_file"]): Entry(**row) for row in rows}


def manifest_frame(entries: Iterable[Entry]) -> pl.DataFrame:
    """The entries as a frame, in order of source and file."""
    rows: list[dict[str, Any]] = [asdict(entry) for entry in entries]
    return pl.DataFrame(rows, schema=SCHEMA).sort("source", "source_file")


def base_name(source_file: str) -> str:
    """The name of a file without the generation that a rotation added."""
    stem, mark, number = source_file.rpartition(GENERATION)
    return stem if mark and number.isdigit() else source_file
