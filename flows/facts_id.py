"""What the facts of a warehouse were made of, as one hash: equal hash, equal facts, so they need not be built again."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from flows.lake import manifest_path
from flows.shipped import shipped
from flows.warehouse import published
from transforms.errors import DataError

if TYPE_CHECKING:
    from flows.catalog import Catalog
    from flows.fleet import LoadedFleet
    from flows.home import Home

FACTS_ID = "facts_id"
PACKAGE_FOLDERS = (Path(__file__).parent, Path(__file__).parent.parent / "transforms")


def facts_id(home: Home, fleet: LoadedFleet, catalog: Catalog) -> str:
    """First 16 hex digits of sha256 over lake manifest, fleet file, catalog entries, SQL, code and DuckDB's version."""
    deployments = fleet.fleet.deployments
    manifest = manifest_path(home)
    digest = hashlib.sha256(manifest.read_bytes() if manifest.is_file() else b"")
    entries = catalog.sha256([d.gpu for d in deployments], [d.model for d in deployments], fleet.base)
    for part in (fleet.sha256, entries, version("duckdb"), code_sha256()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def has_current_facts(home: Home, fleet: LoadedFleet, catalog: Catalog) -> bool:
    """Whether the published warehouse holds the facts that a build would make now."""
    try:
        with published(home) as connection:
            rows = connection.execute("select value_text from dim_settings where name = ?", [FACTS_ID]).fetchall()
    except DataError:
        return False
    return rows == [(facts_id(home, fleet, catalog),)]


@cache
def code_sha256() -> str:
    """Sha256 over the package's own Python and SQL, in hex: another version of either, another plan."""
    digest = hashlib.sha256()
    files = [path for folder in PACKAGE_FOLDERS for path in folder.rglob("*.py")]
    for path in sorted([*files, *shipped("sql").rglob("*.sql"), *shipped("sql").glob("*.toml")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
