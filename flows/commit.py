"""The committer of ingest: runs of all parsed files and the lake become the next lake, in one step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.discover import settings_id
from flows.drift import drift_after, drift_of, read_drift, source_changes, without_files
from flows.lacking import lacking_fields
from flows.lake import (
    REJECTS_SCHEMA,
    Commit,
    drift_path,
    manifest_path,
    reject_days,
    rejects_path,
    request_days,
    requests_path,
    requests_paths,
)
from flows.lake_files import RequestsWriter, write_table
from flows.manifest import Entry, manifest_frame
from flows.merge import DateMerge, Tally
from flows.notes import assumed_days, doubted_settings
from flows.resolving import NO_DECISIONS, day_number, decisions_of, lake_origin
from flows.runs import open_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from flows.discover import Plan
    from flows.home import Home
    from flows.notes import Note
    from flows.parts import Outcome
    from flows.progress import Progress

UNDATED = "1970-01-01"
"""Rejects of a file without a single dated row are filed here."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Key = tuple[str, str]
"""(source, source_file)."""


@dataclass
class Staged:
    """What parsing one file gave, summed over its parts."""

    plan: Plan
    parts: list[dict[str, Any]]

    @property
    def key(self) -> Key:
        """Its key in the manifest."""
        return self.plan.found.source.format, self.plan.found.source_file

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Its runs."""
        return [run for part in self.parts for run in part["runs"]]

    @property
    def rejects(self) -> list[tuple[int, str, str]]:
        """Its rejects: position, reason, sha256."""
        return [reject for part in self.parts for reject in part["rejects"]]

    @property
    def read(self) -> int:
        """Records that are requests or cannot be parsed."""
        rows: int = sum(run["rows"] for run in self.runs)
        duplicates: int = sum(part["duplicates"] for part in self.parts)
        return rows + duplicates + len(self.rejects)

    @property
    def status(self) -> str:
        """How the file ended."""
        states = {part["status"] for part in self.parts}
        return next((s for s in ("truncated", "growing") if s in states), "complete")

    @property
    def is_reread(self) -> bool:
        """Whether its rows in the lake give way to this reading."""
        return self.plan.action == "read" and self.plan.entry is not None


@dataclass(frozen=True)
class Committed:
    """What was staged of each file with how many of its rows are new in the lake, and what there is to say of them."""

    files: dict[Key, tuple[Staged, int]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


@dataclass
class Merged:
    """Rows loaded of each file, and rows of files that gave way to others."""

    loaded: Counter[Key] = field(default_factory=Counter)
    displaced: Counter[Key] = field(default_factory=Counter)


def commit(
    home: Home, plans: Sequence[Plan], outcomes: Sequence[Outcome], entries: Mapping[Key, Entry], progress: Progress
) -> Committed:
    """Publish the next lake."""
    read = zip(plans, outcomes, strict=True)
    staged = [Staged(plan, parts) for plan, parts in read if isinstance(parts, list) and parts]
    if not staged:
        return Committed()
    pending = Commit(home)
    merged = _merge_requests(home, staged, entries, pending, progress)
    _merge_rejects(home, staged, pending)
    updated = _updated(entries, staged, merged)
    write_table(manifest_frame(updated.values()), pending.aside(manifest_path(home)))
    before = without_files(read_drift(drift_path(home)), [file.key for file in staged if file.is_reread])
    fresh = drift_of(staged, home.catalog)
    write_table(drift_after(before, fresh), pending.aside(drift_path(home)))
    pending.publish()
    loaded = {file.key: (file, merged.loaded[file.key]) for file in staged}
    told = (lacking_fields(staged), doubted_settings(staged), assumed_days(staged), source_changes(before, fresh))
    return Committed(loaded, [note for notes in told for note in notes])


def _merge_requests(
    home: Home, staged: Sequence[Staged], entries: Mapping[Key, Entry], pending: Commit, progress: Progress
) -> Merged:
    infos = [run for file in staged for run in file.runs]
    owners = [file.key for file in staged for _ in file.runs]
    runs = [open_run(origin, run) for origin, run in enumerate(infos)]
    days = request_days(home)
    reread = [file.key for file in staged if file.is_reread]
    has_ids = any(run["has_ids"] for run in infos)
    decisions = decisions_of(home, runs, days, reread) if has_ids else NO_DECISIONS
    touched = {day for run in infos for day in run["dates"]}
    touched |= {days[day_number(origin)] for origin in decisions["origin"].unique() if origin < 0}
    touched |= {day for key in reread for day in _days_of(entries[key], days)}
    merged = Merged()
    with progress("writing the lake", len(touched)) as advance:
        for day in sorted(touched):
            holding = [run for run, info in zip(runs, infos, strict=True) if day in info["dates"]]
            before = requests_paths(home, day)
            origin = lake_origin(days.index(day) if before else len(days))
            merge = DateMerge(day, before, origin, holding, decisions, reread)
            tally = _write_day(merge, requests_path(home, day), pending)
            merged.displaced.update(tally.displaced)
            for run, rows in tally.loaded.items():
                merged.loaded[owners[run]] += rows
            advance()
    return merged


def _write_day(merge: DateMerge, first: Path, pending: Commit) -> Tally:
    """Write the date's new files aside; those of its old ones that have no successor go."""
    writer = RequestsWriter(pending.place(first))
    tally = merge.write(writer)
    writer.close()
    written = [first.with_name(path.name) for path in writer.paths]
    for target in written:
        pending.aside(target)
    for old in merge.lake_files:
        if old not in written:
            pending.remove(old)
    return tally


def _days_of(entry: Entry, days: Sequence[str]) -> list[str]:
    if entry.first_arrived_at is None or entry.last_arrived_at is None:
        return []
    first, last = entry.first_arrived_at.date().isoformat(), entry.last_arrived_at.date().isoformat()
    return [day for day in days if first <= day <= last]


def _merge_rejects(home: Home, staged: Sequence[Staged], pending: Commit) -> None:
    fresh: dict[str, list[tuple[str, str, int, str, str]]] = {}
    for file in staged:
        day = min((day for run in file.runs for day in run["dates"]), default=UNDATED)
        for position, reason, sha256 in file.rejects:
            fresh.setdefault(day, []).append((*file.key, position, reason, sha256))
    reread = [file.key for file in staged if file.is_reread]
    for day in sorted({*fresh, *(reject_days(home) if reread else ())}):
        target = rejects_path(home, day)
        before = (
            pl.read_parquet(target, hive_partitioning=False) if target.exists() else pl.DataFrame(schema=REJECTS_SCHEMA)
        )
        kept = before
        for source, source_file in reread:
            kept = kept.filter(~((pl.col("source") == source) & (pl.col("source_file") == source_file)))
        rows = pl.concat([kept, pl.DataFrame(fresh.get(day, []), schema=REJECTS_SCHEMA, orient="row")])
        if len(rows) == len(kept) == len(before):
            continue
        if len(rows):
            write_table(rows.sort("source", "source_file", "source_position"), pending.aside(target))
        else:
            pending.remove(target)


def _updated(entries: Mapping[Key, Entry], staged: Sequence[Staged], merged: Merged) -> dict[Key, Entry]:
    """The manifest after this commit."""
    out = dict(entries)
    for key, rows in merged.displaced.items():
        entry = out[key]
        out[key] = replace(entry, loaded=entry.loaded - rows, duplicates=entry.duplicates + rows)
    for file in staged:
        before = out[file.key] if file.plan.action == "resume" else None
        out[file.key] = _entry(file, merged.loaded[file.key], before)
    return out


def _ignored_before(before: Entry | None) -> int:
    """Records ignored by earlier runs for good: an unfinished last line was left, and is read now."""
    return 0 if before is None else before.ignored - (before.status == "growing")


def _entry(file: Staged, loaded: int, before: Entry | None) -> Entry:
    plan, last = file.plan, file.parts[-1]
    assert plan.seen is not None
    rejected = len(file.rejects)
    duplicates = file.read - loaded - rejected
    edges = (us for run in file.runs for us in (run["marks_us"][0], run["last_us"]))
    stamps = [_EPOCH + timedelta(microseconds=us) for us in edges]
    stamps += [at for at in (before.first_arrived_at, before.last_arrived_at) if at] if before else []
    total_duplicates = duplicates + (before.duplicates if before else 0)
    is_plain = plan.seen.compression == "none" and plan.seen.layout in ("lines", "csv")
    is_counted = not total_duplicates or not any(run["has_content"] for run in file.runs)
    return Entry(
        source=file.key[0],
        source_file=file.key[1],
        sha256=plan.sha256,
        size_bytes=plan.size_bytes,
        settings_id=settings_id(plan.found.source, plan.found.identifiers),
        status=file.status,
        read=file.read + (before.read if before else 0),
        loaded=loaded + (before.loaded if before else 0),
        duplicates=total_duplicates,
        rejected=rejected + (before.rejected if before else 0),
        ignored=sum(part["ignored"] for part in file.parts) + _ignored_before(before),
        first_arrived_at=min(stamps, default=None),
        last_arrived_at=max(stamps, default=None),
        next_offset=last["next_offset"],
        is_resumable=is_plain and is_counted and not last["has_open_tail"] and file.status != "truncated",
    )
