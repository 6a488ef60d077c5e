"""The number of the lake's schema: what this version can read, and what a rebuild has to bring along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from flows.damage import lake_damage_named
from flows.lake import manifest_path, request_days, requests_paths
from flows.manifest import read_manifest
from transforms.canonical import SCHEMA_VERSION
from transforms.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flows.discover import Plan
    from flows.home import Home
    from flows.manifest import Entry

KEY = b"kvledger_schema"


def check_schema(home: Home, *, is_rebuild: bool = False) -> None:
    """Nothing, if this version reads the lake of `home`; a rebuild also takes one of an older schema.

    HomeError that says what to do where the lake was written by a newer version, or by an older one and is not rebuilt.
    """
    found = schema_of(home)
    if found > SCHEMA_VERSION:
        raise HomeError(
            f"{home.lake} was written by a newer kvledger (lake schema {found}, this one knows {SCHEMA_VERSION}); "
            "upgrade kvledger, or name another home with --home"
        )
    if found < SCHEMA_VERSION and not is_rebuild:
        raise HomeError(
            f"{home.lake} was written by an older kvledger (lake schema {found}, this one writes {SCHEMA_VERSION}); "
            "run kvledger ingest --rebuild while its logs are still there"
        )
    if not is_rebuild:
        _check_whole(home)


def loaded_rows(home: Home) -> int:
    """Rows of the lake, as its manifest says they were loaded."""
    return sum(entry.loaded for entry in read_manifest(manifest_path(home)).values())


def _check_whole(home: Home) -> None:
    """HomeError where files of the lake were removed, or others put among them."""
    with lake_damage_named(home):
        paths = (path for day in request_days(home) for path in requests_paths(home, day))
        held, loaded = sum(pq.read_metadata(path).num_rows for path in paths), loaded_rows(home)
    if held != loaded:
        raise HomeError(
            f"{home.lake} holds {held:,} rows, {loaded:,} were loaded: files were removed or changed; "
            "run kvledger ingest --rebuild while its logs are still there"
        )


def schema_of(home: Home) -> int:
    """The schema the lake was written with; that of this version where there is no lake yet."""
    path = manifest_path(home)
    if not path.exists():
        return SCHEMA_VERSION
    number = (pq.read_metadata(path).metadata or {}).get(KEY, b"0")
    return int(number) if number.isdigit() else 0


def check_covered(home: Home, plans: Sequence[Plan], entries: Mapping[tuple[str, str], Entry]) -> None:
    """HomeError where a lake of an older schema is rebuilt and some of what it holds would not be read again."""
    if schema_of(home) == SCHEMA_VERSION:
        return
    read = {(plan.entry.source, plan.entry.source_file) for plan in plans if plan.entry and plan.action == "read"}
    lost = sorted(key for key in entries if key not in read)
    if lost:
        raise HomeError(
            f"{home.lake} holds {len(lost)} files that would not be read again, the first {lost[0][1]} ({lost[0][0]}); "
            f"name them too, or remove {home.lake} and ingest what there is"
        )
