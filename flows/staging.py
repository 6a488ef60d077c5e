"""Parsed rows on disk between reading and merging: sorted runs under HOME/staging, which may be lost at any time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.home import Home
from flows.identifiers import tenant_key
from flows.profile import Profile
from flows.reading.records import RecordStream
from flows.reading.rows import PartReader
from flows.runs import write_run
from transforms.sources.mapped import FORMAT as MAPPED

if TYPE_CHECKING:
    from flows.reading.look import Look
    from flows.reading.rows import Piece, Rejected
    from transforms.fleet import Source

RUN_ROWS = 262_144
RUN_BYTES = 64 << 20
"""A run is flushed at either: what one worker holds of finished rows."""


@dataclass(frozen=True)
class PartJob:
    """One part of one file for a worker: where it lies, how to read it, where its runs go. Plain and picklable."""

    seen: Look
    source: Source
    source_file: str
    start: int
    end: int | None
    is_last: bool
    home: str
    folder: str
    """Where its runs go; two parts never share it."""

    is_hashed: bool
    ordinal: int = 0


def parse_part(job: PartJob) -> dict[str, Any]:
    """Read one part and write its rows as sorted runs; gives counts, runs, rejects and how the part ended.

    Made again after a crash or a retry it writes the same files.
    """
    home = Home(Path(job.home))
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    key = tenant_key(home.tenant_key) if job.is_hashed else None
    records = RecordStream(job.seen, job.start, job.end, job.is_last)
    profile = Profile(paths=set() if job.source.format == MAPPED else None)
    records.sample = profile.take_records
    reader = PartReader(records, job.source, job.source_file, key, home.catalog, {"ordinal": job.ordinal})
    held: list[Piece] = []
    runs: list[dict[str, Any]] = []
    rejects: list[Rejected] = []
    ignored = duplicates = 0
    for piece in reader.pieces():
        held.append(piece)
        rejects += piece.rejects
        ignored += piece.ignored
        duplicates += piece.duplicates
        if sum(len(p.rows) for p in held) >= RUN_ROWS or sum(p.rows.estimated_size() for p in held) >= RUN_BYTES:
            runs += _flush(held, folder, len(runs), profile)
    runs += _flush(held, folder, len(runs), profile)
    return {
        "source_file": job.source_file,
        "runs": runs,
        "rejects": [(r.position, r.reason, r.sha256) for r in rejects],
        "ignored": ignored + records.ignored,
        "duplicates": duplicates,
        "status": records.status,
        "next_offset": records.next_offset,
        "has_open_tail": records.has_open_tail,
        "profile": profile.summary(job.seen.columns),
        "fields": sorted({*reader.valued, *(profile.paths or ()), *job.seen.columns}),
    }


def _flush(held: list[Piece], folder: Path, number: int, profile: Profile) -> list[dict[str, Any]]:
    """Write what is held as one run in order of arrival and empty `held`; no run where there are no rows."""
    pieces = [piece for piece in held if len(piece.rows)]
    held.clear()
    if not pieces:
        return []
    varying = {name for piece in pieces for name in (*piece.varying, "content_id")}
    rows = pl.concat(piece.rows.select(name for name in piece.rows.columns if name in varying) for piece in pieces)
    if not rows["arrived_at"].is_sorted():
        rows = rows.sort("arrived_at", maintain_order=True)
    first = pieces[0].rows.head(1).row(0, named=True)
    constants = {name: value for name, value in first.items() if value is not None and name not in varying}
    profile.take_rows(rows, constants)
    return [write_run(rows, folder / f"{number:05}.arrow", constants)]
