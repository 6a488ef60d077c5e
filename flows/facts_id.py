"""What the facts of a warehouse were made of: whether they are current, can be brought up to date, or not even that."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from flows.damage import lake_damage_named
from flows.lake import manifest_path
from flows.lake_days import REQUESTS, Span, days_after, held_days, is_most, lake_days, stale_days
from flows.log import LOGGER
from flows.models import models, readers
from flows.raw_inputs import open_lake
from flows.shipped import shipped
from flows.warehouse import published
from transforms.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.lake_days import LakeDay, Stale

    Days = Mapping[tuple[str, date], LakeDay]

FACTS_ID, RECIPE = "facts_id", "recipe"
PARTIAL = "partial"
"""facts_id of a warehouse that lacks some days of the lake, or has them as they were: it is never current."""
MADE_OF = {
    FACTS_ID: "sha256 of lake, fleet, catalog, SQL and code",
    RECIPE: "sha256 of what turns a day of the lake into facts",
}
PACKAGE_FOLDERS = (Path(__file__).parent, Path(__file__).parent.parent / "transforms")
WORDS = {
    "serves": "deployments of the fleet file or what they serve changed",
    "deployments": "deployments of the fleet file changed",
    "timezone": "the time zone of planning changed",
    "settings": "planning, privacy or prices of the fleet file changed",
    "catalog": "the catalog changed",
    "code": "kvledger was upgraded",
    "duckdb": "DuckDB was upgraded",
}
"""Part of the recipe -> what to say when it differs."""
_PLACED = ("raw_deployments", "raw_kv_groups", "raw_memory")
INPUTS = {
    "serves": ("raw_serves",),
    "deployments": _PLACED,
    "timezone": ("raw_hours",),
    "settings": (),
    "catalog": _PLACED,
}
"""Part of the recipe -> relations it goes into, of those that more than dimensions hang on: a price fills one column of
dim_deployments, which no fact reads."""


@dataclass(frozen=True)
class FactsDue:
    """What a build has to do: the days its facts are of once it is done, and which of them are made again."""

    days: tuple[LakeDay, ...]
    stale: Stale | None
    """None: all of `days`, and everything else, anew."""
    facts_id: str


def facts_due(home: Home, fleet: LoadedFleet, catalog: Catalog, span: Span, *, is_anew: bool = False) -> FactsDue:
    """What a build of the days of `span` has to do; DataError where there is nothing to build, or not by a span.

    The caller holds the home's lock.
    """
    with lake_damage_named(home):
        open_lake(home)
        now = lake_days(home)
    _check_span(now, span)
    held = None if is_anew else _held(home, fleet, catalog)
    if isinstance(held, _Unusable):
        if not span.is_all:
            what = f"{home.warehouse} has to be built anew as a whole ({held.why})"
            raise DataError(f"{what}; run kvledger build without --from and --to")
        LOGGER.log(held.level, "the warehouse is built anew from the lake: %s", held.why)
        held = None
    stale = stale_days(now, held.days if held else {}, span)
    if held is None or (span.is_all and is_most(now, stale)):
        days = tuple(day for day in now.values() if day.lake_part != REQUESTS or span.holds(day.arrival_date))
        is_whole = len(days) == len(now)
        return FactsDue(days, None, facts_id(home, fleet, catalog) if is_whole else PARTIAL)
    after = tuple(days_after(now, held.days, stale))
    made = PARTIAL if stale.left else facts_id(home, fleet, catalog)
    return FactsDue(after, replace(stale, remade=held.remade), made)


def facts_id(home: Home, fleet: LoadedFleet, catalog: Catalog) -> str:
    """First 16 hex digits of sha256 over the lake's manifest and the recipe: equal, if the facts are."""
    manifest = manifest_path(home)
    digest = hashlib.sha256(manifest.read_bytes() if manifest.is_file() else b"")
    digest.update(recipe_text(fleet, catalog).encode())
    return digest.hexdigest()[:16]


def recipe_text(fleet: LoadedFleet, catalog: Catalog) -> str:
    """What turns the lake into facts: parts of the fleet file, catalog entries, SQL and code, DuckDB, a digest each."""
    deployments, planning = fleet.fleet.deployments, fleet.fleet.planning
    parts = {
        "serves": _digest([(each.name, each.serves) for each in deployments]),
        "deployments": _digest([asdict(replace(each, calibration=None)) for each in deployments]),
        "timezone": _digest(planning.timezone),
        "settings": _digest([asdict(planning), asdict(fleet.fleet.privacy), dict(fleet.fleet.prices), fleet.path.name]),
        "catalog": catalog.sha256([d.gpu for d in deployments], [d.model for d in deployments], fleet.base)[:16],
        "code": code_sha256()[:16],
        "duckdb": version("duckdb"),
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def has_current_facts(home: Home, fleet: LoadedFleet, catalog: Catalog) -> bool:
    """Whether the published warehouse holds the facts that a build would make now."""
    try:
        with published(home) as connection:
            rows = connection.execute("select value_text from dim_settings where name = ?", [FACTS_ID]).fetchall()
    except DataError:
        return False
    return rows == [(facts_id(home, fleet, catalog),)]


@dataclass(frozen=True)
class _Held:
    """What can be kept of the published warehouse: the days of its facts, and the tables that are made whole again."""

    days: Days
    remade: frozenset[str]


@dataclass(frozen=True)
class _Unusable:
    """Why nothing can be kept of the published warehouse, and how loud to say so."""

    why: str
    level: int


def _held(home: Home, fleet: LoadedFleet, catalog: Catalog) -> _Held | _Unusable | None:
    """What of the published warehouse can be brought up to date, or why nothing can; None where there is none."""
    if not home.warehouse.exists():
        return None
    try:
        with published(home) as connection:
            rows = connection.execute("select value_text from dim_settings where name = ?", [RECIPE]).fetchall()
            differing = _differing(str(rows[0][0]) if rows else "", recipe_text(fleet, catalog))
            words = " and ".join(WORDS[part] for part in differing)
            remade = _remade(differing)
            if remade is not None:
                if words:
                    LOGGER.info("the facts stay, what hangs on the change is made again: %s", words)
                return _Held(held_days(connection), remade)
    except DataError as error:
        return _Unusable(str(error).partition(";")[0], logging.WARNING)
    return _Unusable(words, logging.WARNING if {"code", "duckdb"} & set(differing) else logging.INFO)


def _remade(differing: Sequence[str]) -> frozenset[str] | None:
    """Tables to make again where these parts of the recipe differ; None: all, facts of sessions are among them."""
    if not set(differing) <= INPUTS.keys():
        return None
    remade = readers(relation for part in differing for relation in INPUTS[part])
    is_by_session = {model.name for model in models() if model.incremental == "session"}
    return None if remade & is_by_session else remade


def _digest(value: object) -> str:
    """16 hex digits of the sha256 of `value` as JSON; sets are sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=sorted).encode()).hexdigest()[:16]


def _differing(held: str, now: str) -> list[str]:
    """Parts of the recipe that differ; a warehouse without a recipe is one of older code."""
    if not held:
        return ["code"]
    before = dict(part.split(" ", 1) for part in held.split(", "))
    return [name for name, value in (part.split(" ", 1) for part in now.split(", ")) if before.get(name) != value]


def _check_span(now: Days, span: Span) -> None:
    days = sorted(day for part, day in now if part == REQUESTS)
    if not any(span.holds(day) for day in days):
        raise DataError(
            f"the lake has no requests from {span.first or 'its start'} to {span.last or 'its end'}; "
            f"it has days from {days[0]} to {days[-1]}"
        )


@cache
def code_sha256() -> str:
    """Sha256 over the package's own Python and SQL, in hex: another version of either, another plan."""
    digest = hashlib.sha256()
    files = [path for folder in PACKAGE_FOLDERS for path in folder.rglob("*.py")]
    for path in sorted([*files, *shipped("sql").rglob("*.sql"), *shipped("sql").glob("*.toml")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
