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
from typing import TYPE_CHECKING

import polars as pl

from transforms.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path

    from flows.home import Home

REJECTS_SCHEMA: dict[str, pl.DataType] = {
    "source": pl.String(),
    "source_file": pl.String(),
    "source_position": pl.Int64(),
    "reason": pl.String(),
    "excerpt_sha256": pl.String(),
}


def manifest_path(home: Home) -> Path:
    """The manifest file."""
    return home.lake / "manifest" / "files.parquet"


def drift_path(home: Home) -> Path:
    """The file that tells what each file and day of the lake had of known and unknown fields."""
    return home.lake / "manifest" / "drift.parquet"


def requests_path(home: Home, day: str) -> Path:
    """The first Parquet file of canonical rows that arrived on `day` (YYYY-MM-DD, UTC)."""
    return home.lake / "requests" / f"date={day}" / "part-0.parquet"


def requests_paths(home: Home, day: str) -> list[Path]:
    """All Parquet files of that day, in the order of their rows."""
    files = requests_path(home, day).parent.glob("part-*.parquet")
    return sorted(files, key=lambda path: int(path.stem.removeprefix("part-")))


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
class Commit:
    """New versions of lake files, written aside; `publish` puts them all in place at once."""

    home: Home
    moves: list[tuple[str, str]] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)

    def aside(self, target: Path) -> Path:
        """Where to write the new version of the lake file `target`."""
        aside = self.place(target)
        aside.parent.mkdir(parents=True, exist_ok=True)
        self.moves.append((str(aside.relative_to(self.home.root)), str(target.relative_to(self.home.root))))
        return aside

    def place(self, target: Path) -> Path:
        """Where `aside` puts the lake file `target`, without noting that there is a new version."""
        return self.home.staging / "commit" / target.relative_to(self.home.lake)

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
    try:
        document = json.loads(journal.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HomeError(
            f"{journal}: is damaged and cannot be read; remove {home.lake} and ingest the logs again"
        ) from error
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
