"""Ingest: log files in, lake out. How data walks, and why every step may be cut short.

1. `settle` finishes a commit that a killed run left half-moved; what it parsed and did not commit is thrown away.
   `fetched` brings logs of object stores into HOME/staging/objects.
2. `discover` finds the files, and by the manifest and their sha256 settles what each is: unchanged (nothing to do),
   grown (read on at the byte where the last run ended), changed or read under other settings (read anew, the old rows
   give way), new. Files are cut into parts at line ends, at sizes that do not depend on the number of workers.
3. `parse_part` (in worker processes) turns bytes into lines, lines into batches, batches into canonical rows, rejects
   and counts, and writes rows as runs sorted by arrival under HOME/staging/runs. An unfinished last line is left.
4. `commit` (one process) finds out which rows are the same: by id over the whole lake, by content and occurrence inside
   one instant. It merges the runs with each touched date, slice of time by slice, in the order (arrived_at, source,
   request_id, attempt), writes dates, rejects and manifest aside, and publishes them with one rename (flows/lake.py).

The new lake is a function of the old lake and of the files: not of the order in which parts end, of the number of
workers or of runs that died. Files are read in batches and dates are merged in slices: memory does not grow with them.
"""

from __future__ import annotations

import errno
import shutil
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from flows.commit import Staged, commit
from flows.damage import lake_damage_named
from flows.discover import Digests, Plan, find_files, plan_file, told_apart
from flows.fetching import fetched
from flows.lake import clear_staging, manifest_path, settle
from flows.manifest import read_manifest
from flows.parts import Outcome, parse
from flows.reading.formats import AUTO
from flows.reading.recognise import UNKNOWN
from flows.schema import check_covered, check_schema
from transforms.errors import HomeError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from flows.home import Home
    from flows.manifest import Entry
    from flows.notes import Note
    from flows.progress import Progress
    from transforms.fleet import Privacy, Source


COUNTS = ("read", "loaded", "duplicates", "rejected", "ignored")


@dataclass(frozen=True)
class FileResult:
    """What became of one file in this run; counts are of this run alone."""

    source: str
    source_file: str
    sha256: str
    status: str
    read: int = 0
    loaded: int = 0
    duplicates: int = 0
    rejected: int = 0
    ignored: int = 0
    reason: str = ""


@dataclass(frozen=True)
class IngestResult:
    """What became of a run: its files, and warnings for the user."""

    files: list[FileResult] = field(default_factory=list)
    warnings: list[Note] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The run as the one JSON object of `kvledger ingest --json`."""
        totals = {count: self.total(count) for count in COUNTS[:-1]}
        files, warnings = [asdict(file) for file in self.files], [asdict(note) for note in self.warnings]
        return {**totals, "files": files, "warnings": warnings}

    def total(self, count: str) -> int:
        """Sum over the files of `read`, `loaded`, `duplicates`, `rejected` or `ignored`."""
        return sum(getattr(file, count) for file in self.files)


def ingest(
    home: Home,
    sources: Sequence[Source],
    *,
    base: Path,
    privacy: Privacy,
    progress: Progress,
    executor: Executor,
    is_rebuild: bool = False,
) -> IngestResult:
    """The lake with the files of `sources` in it; the caller holds the home's lock.

    A rebuild reads all of them anew, whatever was read before: what they gave then gives way in the same commit.

    InputError where a file named in `sources` itself is missing, empty, of another format or wholly rejected, or where
    nothing could be read at all; then the lake is as it was.
    """
    try:
        settle(home)
        clear_staging(home)
        with lake_damage_named(home):
            check_schema(home, is_rebuild=is_rebuild)
            entries = read_manifest(manifest_path(home))
        digests = Digests(home.staging / "digests.json")
        sources = fetched(home, sources, progress)
        plans = discover(home, sources, base, privacy, entries=entries, digests=digests, is_rebuild=is_rebuild)
        check_covered(home, plans, entries)
        plans, outcomes = parse(home, plans, privacy, progress=progress, executor=executor, digests=digests)
        with lake_damage_named(home):
            committed = commit(home, plans, outcomes, entries, progress)
        files = _results(plans, outcomes, committed.files)
        digests.save()
    except OSError as error:
        raise _trouble(home, error) from error
    finally:
        shutil.rmtree(home.staging / "runs", ignore_errors=True)
    return IngestResult(files, committed.notes)


def discover(
    home: Home,
    sources: Sequence[Source],
    base: Path,
    privacy: Privacy,
    *,
    entries: Mapping[tuple[str, str], Entry],
    digests: Digests,
    is_rebuild: bool = False,
) -> list[Plan]:
    """What to do with each file of `sources`, whose relative paths begin at `base`."""
    found = find_files(sources, base, privacy.identifiers)
    return told_apart(
        [plan_file(file, entries, home.catalog, digests, is_rebuild=is_rebuild) for file in found], entries
    )


def _results(
    plans: Sequence[Plan], outcomes: Sequence[Outcome], committed: Mapping[tuple[str, str], tuple[Staged, int]]
) -> list[FileResult]:
    """One result per file; InputError where no file could be read and none had been read before."""
    out = [_result(plan, outcome, committed) for plan, outcome in zip(plans, outcomes, strict=True)]
    if out and all(file.status in ("refused", "empty") for file in out):
        number = min(range(len(out)), key=lambda n: _rank(plans[n], out[n]))
        reason = out[number].reason or "is empty"
        raise InputError(f"nothing could be ingested; one of {len(out)} files: {plans[number].found.path}: {reason}")
    return out


def _rank(plan: Plan, file: FileResult) -> int:
    """How little the failure of a file says: one of a known format before one of no known format, empty ones last."""
    if not file.reason:
        return 3
    if plan.found.source.format != AUTO:
        return 0
    return 2 if file.reason.endswith(UNKNOWN) else 1


def _result(plan: Plan, outcome: Outcome, committed: Mapping[tuple[str, str], tuple[Staged, int]]) -> FileResult:
    source, name = plan.found.source.format, plan.found.source_file
    if isinstance(outcome, str) or plan.action == "refused":
        return FileResult(source, name, plan.sha256, "refused", reason=plan.reason or str(outcome))
    if not outcome:
        return FileResult(source, name, plan.sha256, plan.action)
    staged, loaded = committed[source, name]
    rejected = len(staged.rejects)
    return FileResult(
        source,
        name,
        plan.sha256,
        staged.status,
        read=staged.read,
        loaded=loaded,
        duplicates=staged.read - loaded - rejected,
        rejected=rejected,
        ignored=sum(part["ignored"] for part in staged.parts),
    )


def _trouble(home: Home, error: OSError) -> HomeError | InputError:
    """The one line that says what the disk refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HomeError(f"{home.root}: the disk is full; make room and run again (the lake is as it was)")
    name = error.filename or home.root
    return HomeError(f"{name}: {error.strerror or error}; check the disk and its permissions, then run again")
