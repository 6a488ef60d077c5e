"""What a part of a log looks like apart from its rows: doubts about settings, null counts by day, names of fields."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.canonical import SCHEMA
from transforms.fields.conservation import SETTING_DOUBTS
from transforms.fields.decode import parse

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

MOST_NAMES = 1000
"""Names that a part hands on: more are keys of somebody's data, not fields of a format."""
DEEPEST = 6
"""Objects within each other whose fields are named."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}")
CONTENT = re.compile(r"\d{5}|\d+\.\d+\.\d+|[0-9a-fA-F-]{12}")
"""Ids, addresses and stamps that stand where a name should: they are content, and are not kept."""
UNWATCHED = frozenset({"arrived_at", "flags", "source", "source_file", "source_position"})
DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WATCHED = tuple(name for name in SCHEMA if name not in UNWATCHED)


@dataclass
class Profile:
    """Sums over the rows and the first records of one part."""

    doubts: Counter[str] = field(default_factory=Counter)
    days: dict[str, dict[str, Any]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    paths: set[str] | None = None
    """Names of fields in objects of the records too, dots between them; None where nobody asks for them."""

    def take_rows(self, rows: pl.DataFrame, constants: Container[str] = ()) -> None:
        """Add finished rows, which are in order of arrival; `constants` are columns of one value that they lack."""
        if "flags" in rows.columns and rows["flags"].list.len().max():
            told = rows["flags"].explode().value_counts()
            self.doubts.update({flag: n for flag, n in told.iter_rows() if flag in SETTING_DOUBTS})
        stamps = rows["arrived_at"].to_physical()
        first_day, last_day = stamps[0] // DAY_US, stamps[-1] // DAY_US
        midnights = pl.Series([day * DAY_US for day in range(first_day, last_day + 2)], dtype=pl.Int64)
        bounds = stamps.search_sorted(midnights, side="left").to_list()
        for start, end in pairwise(bounds):
            if start < end:
                part = rows.slice(start, end - start)
                nulls = part.null_count().row(0, named=True)
                given = {name: 0 if name in constants else nulls.get(name, end - start) for name in WATCHED}
                day = (_EPOCH + timedelta(microseconds=stamps[start])).date().isoformat()
                self.days[day] = joined(self.days.get(day), end - start, stamps[start], stamps[end - 1], given)

    def take_records(self, lines: Iterable[bytes]) -> None:
        """Add the names of the fields of JSON records; what is no object has none."""
        for line in lines:
            try:
                record = parse(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                self.names.update(record)
                if self.paths is not None and len(self.paths) < MOST_NAMES:
                    self.paths.update(paths_of(record))

    def summary(self, columns: Iterable[str]) -> dict[str, Any]:
        """The profile as plain values; `columns` are the names of a CSV or Parquet file."""
        names = sorted({name for name in (*self.names, *columns) if is_name(name)})[:MOST_NAMES]
        return {"doubts": dict(self.doubts), "days": self.days, "names": names}


def paths_of(record: dict[str, Any], above: str = "", depth: int = DEEPEST) -> Iterator[str]:
    """Names of the fields of a JSON object and of the objects in it, as a mapping names them: `usage`, `usage.in`."""
    for name, value in record.items():
        yield above + name
        if depth > 1 and isinstance(value, dict):
            yield from paths_of(value, f"{above}{name}.", depth - 1)


def joined(before: dict[str, Any] | None, rows: int, first_us: int, last_us: int, nulls: dict[str, int]) -> Any:
    """What is known of a day after so many more rows."""
    if before is None:
        return {"rows": rows, "first_us": first_us, "last_us": last_us, "nulls": nulls}
    return {
        "rows": before["rows"] + rows,
        "first_us": min(before["first_us"], first_us),
        "last_us": max(before["last_us"], last_us),
        "nulls": {name: before["nulls"][name] + number for name, number in nulls.items()},
    }


def is_name(name: str) -> bool:
    """Whether a key may be the name of a field, and not content that stands in its place."""
    return NAME.fullmatch(name) is not None and CONTENT.search(name) is None
