"""Earlier warehouses: what a publish takes the place of stays beside it, the newest few under a number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.log import LOGGER
from transforms.errors import DataError
from transforms.fleet_running import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from flows.home import Home

KEPT_VERSIONS = Warehouse.keep_versions
"""Earlier warehouses kept unless `[warehouse] keep_versions` says otherwise: each costs its size on disk."""

_NAME = re.compile(r"kvledger-(\d+)\.duckdb")


@dataclass(frozen=True)
class Version:
    """One earlier warehouse: a number that only grows, and its file."""

    number: int
    path: Path


def versions(home: Home) -> list[Version]:
    """The earlier warehouses of `home`, oldest first."""
    return _versions(_folder(home.warehouse))


def version_path(home: Home, number: int | None) -> Path:
    """File of the published warehouse, or of the earlier one `number`; DataError names those there are."""
    if number is None:
        return home.warehouse
    found = {version.number: version.path for version in versions(home)}
    if number not in found:
        kept = f"kept are {', '.join(map(str, found))}" if found else "none are kept ([warehouse] keep_versions)"
        raise DataError(f"no earlier warehouse {number} at {_folder(home.warehouse)}; {kept}")
    return found[number]


def keep_version(published: Path) -> None:
    """Give the published file a second name among the versions, where it has none yet; what it holds is not copied."""
    folder = _folder(published)
    found = _versions(folder)
    if not published.exists() or (found and found[-1].path.samefile(published)):
        return
    folder.mkdir(exist_ok=True)
    number = found[-1].number + 1 if found else 1
    try:
        (folder / f"kvledger-{number:04}.duckdb").hardlink_to(published)
    except OSError as error:  # a file system without hard links
        LOGGER.warning("the warehouse before this one is not kept: %s", error.strerror)


def drop_versions(published: Path, kept: int) -> None:
    """Remove all but the newest `kept` versions; who has one open goes on reading it."""
    folder = _folder(published)
    found = _versions(folder)
    for version in found[: len(found) - kept]:
        version.path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _folder(published: Path) -> Path:
    return published.parent / "versions"


def _versions(folder: Path) -> list[Version]:
    named = ((_NAME.fullmatch(path.name), path) for path in folder.glob("*.duckdb"))
    return sorted((Version(int(name[1]), path) for name, path in named if name), key=lambda version: version.number)
