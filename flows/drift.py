"""How a source changes: what of each file and day was unknown or new, kept beside the manifest, and told when it moves.

HOME/lake/manifest/drift.parquet has one row per file, UTC day and field. A "known" field is a canonical column, counted
over all rows read: `null_rows` = `rows` means that the day lacks it. An "unknown" field is a top-level name of the log
that its format does not read, seen in the first records of a part; values are never kept, nor names that look like one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from flows.manifest import base_name
from flows.notes import DRIFT_CODE, Note
from flows.profile import joined
from flows.reading.vocabulary import vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from flows.commit import Staged

SCHEMA: dict[str, pl.DataType] = {
    "source": pl.String(),
    "source_file": pl.String(),
    "date": pl.String(),
    "field": pl.String(),
    "kind": pl.String(),
    "rows": pl.Int64(),
    "null_rows": pl.Int64(),
    "first_arrived_at": pl.Datetime("us", "UTC"),
    "last_arrived_at": pl.Datetime("us", "UTC"),
}
KNOWN, UNKNOWN = "known", "unknown"
LEAST_ROWS = 20
"""Fewer rows say nothing about a share."""
MOVED_RATIO = 0.2
"""A null share that moved by more is told."""
EXPECTED_ROWS = 5
"""A field is missed where so many rows would have had it, had nothing changed."""
MOST_TOLD = 5
MOST_UNKNOWN = 50
"""Unknown names kept of one file."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STAMPED = re.compile(r"(\.(gz|zst|zstd))$|[0-9a-fA-F]{8,}|\d+")


def read_drift(path: Path) -> pl.DataFrame:
    """The rows at `path`; none where there is no such file yet."""
    return pl.read_parquet(path).select(*SCHEMA) if path.exists() else pl.DataFrame(schema=SCHEMA)


def drift_of(staged: Sequence[Staged], catalog: Path) -> pl.DataFrame:
    """The rows of what was read in this run."""
    return pl.DataFrame([row for file in staged for row in _rows(file, catalog)], schema=SCHEMA)


def without_files(rows: pl.DataFrame, files: Sequence[tuple[str, str]]) -> pl.DataFrame:
    """`rows` but those of `files`, each (source, source_file)."""
    gone = pl.DataFrame(files, schema={"source": pl.String(), "source_file": pl.String()}, orient="row")
    return rows.join(gone, on=["source", "source_file"], how="anti")


def drift_after(kept: pl.DataFrame, fresh: pl.DataFrame) -> pl.DataFrame:
    """The rows after this run: what is `kept` of earlier ones and what is `fresh`, summed where a file grew."""
    grain = ["source", "source_file", "date", "field", "kind"]
    sums = [pl.col("rows", "null_rows").sum(), pl.col("first_arrived_at").min(), pl.col("last_arrived_at").max()]
    return pl.concat([kept, fresh]).group_by(grain).agg(*sums).select(*SCHEMA).sort(grain)


def _rows(file: Staged, catalog: Path) -> Iterable[dict[str, Any]]:
    days: dict[str, dict[str, Any]] = {}
    for part in file.parts:
        for day, seen in part["profile"]["days"].items():
            days[day] = joined(days.get(day), seen["rows"], seen["first_us"], seen["last_us"], seen["nulls"])
    known = vocabulary(file.plan.found.source, catalog)
    names = sorted({name for part in file.parts for name in part["profile"]["names"]} - known)[:MOST_UNKNOWN]
    for day, seen in days.items():
        row = {
            "source": file.key[0],
            "source_file": file.key[1],
            "date": day,
            "rows": seen["rows"],
            "first_arrived_at": _EPOCH + timedelta(microseconds=seen["first_us"]),
            "last_arrived_at": _EPOCH + timedelta(microseconds=seen["last_us"]),
        }
        for name, nulls in seen["nulls"].items():
            yield {**row, "field": name, "kind": KNOWN, "null_rows": nulls}
        for name in names:
            yield {**row, "field": name, "kind": UNKNOWN, "null_rows": 0}


def series_of(source_file: str) -> str:
    """What the files of one log have in common: the name without generation, compression, dates, numbers and ids."""
    name = base_name(source_file).removesuffix(".gz").removesuffix(".zst").removesuffix(".zstd")
    return _STAMPED.sub("#", name)


def source_changes(before: pl.DataFrame, fresh: pl.DataFrame) -> list[Note]:
    """One note per series of files that changed between the last day of `before` and the rows of this run.

    Both are frames of SCHEMA. Nothing is told of a series seen for the first time, nor of the shares of few rows.
    """
    now = _with_series(fresh)
    earlier = _with_series(before).join(now, on=["source", "series"], how="semi")
    is_last_day = pl.col("date") == pl.col("date").max().over("source", "series")
    last, names = earlier.filter(is_last_day), earlier.filter(kind=UNKNOWN)
    notes = []
    for source, series in sorted(earlier.select("source", "series").unique().iter_rows()):
        of = {"source": source, "series": series}
        changes = _changes(last.filter(**of), now.filter(**of), set(names.filter(**of)["field"]))
        if changes:
            more = f" and {len(changes) - MOST_TOLD} more" if len(changes) > MOST_TOLD else ""
            told = "; ".join(changes[:MOST_TOLD]) + more
            text = f"{series} ({source}) changed since it was last read: {told}; check the source's settings"
            notes.append(Note(DRIFT_CODE, text))
    return notes


def _with_series(rows: pl.DataFrame) -> pl.DataFrame:
    files = rows.select("source_file").unique(maintain_order=True)
    names = pl.Series("series", [series_of(name) for name in files["source_file"]], dtype=pl.String)
    return rows.join(files.with_columns(names), on="source_file", how="left")


def _shares(rows: pl.DataFrame) -> tuple[dict[str, float], int]:
    """Null share of each known field, and the rows that stand behind it."""
    sums = rows.filter(kind=KNOWN).group_by("field").agg(pl.col("rows", "null_rows").sum())
    shares = {name: nulls / number for name, number, nulls in sums.iter_rows() if number}
    return shares, int(sums["rows"].max() or 0)  # type: ignore[arg-type]


def _changes(before: pl.DataFrame, now: pl.DataFrame, old_names: set[str]) -> list[str]:
    (old, old_rows), (new, new_rows) = _shares(before), _shares(now)
    out = [f"new field '{name}'" for name in sorted({*now.filter(kind=UNKNOWN)["field"]} - old_names)]
    if min(old_rows, new_rows) < LEAST_ROWS:
        return out
    for name in sorted(old.keys() & new.keys()):
        if new[name] == 1 and (1 - old[name]) * new_rows >= EXPECTED_ROWS:
            out.append(f"{name} is missing (known in {1 - old[name]:.0%} before)")
        elif abs(new[name] - old[name]) > MOVED_RATIO:
            out.append(f"{name} is unknown in {new[name]:.0%} (before: {old[name]:.0%})")
    return out
