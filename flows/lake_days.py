"""The days of the lake by their content, and which of them a warehouse does not hold as they are now."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from flows.lake import reject_days, rejects_path, request_days, requests_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from flows.home import Home

REQUESTS, REJECTS = "requests", "rejects"
LAKE_DAYS: Mapping[str, pl.DataType] = {
    "lake_part": pl.String(),
    "arrival_date": pl.Date(),
    "content_sha256": pl.String(),
    "lake_rows": pl.Int64(),
}
"""Columns of raw_lake_days."""

LARGEST_SHARE = 0.5
"""Share of the lake's rows above which building anew is quicker than bringing days up to date."""


@dataclass(frozen=True)
class LakeDay:
    """What the lake holds of one UTC day: sha256 over its files in order, and its rows."""

    lake_part: str
    arrival_date: date
    content_sha256: str
    lake_rows: int

    @property
    def key(self) -> tuple[str, date]:
        """Part of the lake and day."""
        return self.lake_part, self.arrival_date


@dataclass(frozen=True)
class Span:
    """Days asked for, both ends included; None: no bound."""

    first: date | None = None
    last: date | None = None

    def holds(self, day: date) -> bool:
        """Whether `day` is one of them."""
        return (self.first is None or day >= self.first) and (self.last is None or day <= self.last)

    @property
    def is_all(self) -> bool:
        """Whether no bound was asked for."""
        return self.first is None and self.last is None


@dataclass(frozen=True)
class Stale:
    """Days whose requests, and days whose rejects, are to be brought up to date, and which others wait."""

    requests: tuple[date, ...]
    rejects: tuple[date, ...]
    left: tuple[date, ...] = ()
    """Days of requests that differ too, outside the span asked for."""
    remade: frozenset[str] = frozenset()
    """Tables made whole again, whatever the days: they hang on what changed in the fleet file or the catalog."""


def lake_days(home: Home) -> dict[tuple[str, date], LakeDay]:
    """What the lake of `home` holds now, by part and day."""
    days = [_day(REQUESTS, day, requests_paths(home, day)) for day in request_days(home)]
    days += [_day(REJECTS, day, [rejects_path(home, day)]) for day in reject_days(home)]
    return {day.key: day for day in days}


def held_days(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, date], LakeDay]:
    """What the warehouse behind `connection` was built from, by part and day."""
    rows = connection.execute(f"select {', '.join(LAKE_DAYS)} from dim_lake_days").fetchall()  # noqa: S608
    return {day.key: day for day in (LakeDay(*row) for row in rows)}


def stale_days(now: Mapping[tuple[str, date], LakeDay], held: Mapping[tuple[str, date], LakeDay], span: Span) -> Stale:
    """Days that differ between lake (`now`) and warehouse (`held`); those of a bounded `span` in any case."""
    differing = {key for key in now.keys() | held.keys() if _content(now, key) != _content(held, key)}
    requests = {day for part, day in differing if part == REQUESTS}
    asked = set() if span.is_all else {day for part, day in now.keys() | held.keys() if part == REQUESTS}
    inside = {day for day in requests | asked if span.holds(day)}
    rejects = {day for part, day in differing if part == REJECTS}
    return Stale(tuple(sorted(inside)), tuple(sorted(rejects)), tuple(sorted(requests - inside)))


def is_most(now: Mapping[tuple[str, date], LakeDay], stale: Stale) -> bool:
    """Whether the stale days hold so much of the lake that building anew is quicker."""
    total = sum(day.lake_rows for day in now.values() if day.lake_part == REQUESTS)
    rows = sum(
        day.lake_rows for day in now.values() if day.lake_part == REQUESTS and day.arrival_date in stale.requests
    )
    return rows > LARGEST_SHARE * total


def days_after(
    now: Mapping[tuple[str, date], LakeDay], held: Mapping[tuple[str, date], LakeDay], stale: Stale
) -> list[LakeDay]:
    """What a warehouse holds once the stale days are as in the lake, in order: rows of raw_lake_days."""
    left = set(stale.left)
    kept = [day for key, day in held.items() if key[0] == REQUESTS and key[1] in left]
    fresh = [day for key, day in now.items() if key[0] == REJECTS or key[1] not in left]
    return sorted([*kept, *fresh], key=lambda day: day.key)


def weeks_of(days: Iterable[date]) -> set[str]:
    """ISO weeks that `days` lie in, as the warehouse writes them."""
    return {day.strftime("%G-W%V") for day in days}


def _content(days: Mapping[tuple[str, date], LakeDay], key: tuple[str, date]) -> str | None:
    return days[key].content_sha256 if key in days else None


def _day(part: str, day: str, paths: Sequence[Path]) -> LakeDay:
    digest, rows = hashlib.sha256(), 0
    for path in paths:
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
        rows += pq.read_metadata(path).num_rows
    return LakeDay(part, date.fromisoformat(day), digest.hexdigest(), rows)
