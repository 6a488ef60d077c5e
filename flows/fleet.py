"""Reads the fleet file: the one named, else the home's, else the shipped example."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.shipped import shipped
from transforms.errors import ConfigError, nearest
from transforms.fleet import Fleet, parse_fleet

if TYPE_CHECKING:
    from pathlib import Path

    from flows.catalog import Catalog
    from flows.home import Home


@dataclass(frozen=True)
class LoadedFleet:
    """A fleet, the file it came from, the folder its relative paths start at, and the sha256 of its bytes."""

    fleet: Fleet
    path: Path
    base: Path
    sha256: str
    is_example: bool


def load_fleet(path: Path | None, home: Home) -> LoadedFleet:
    """The fleet file at `path`, else HOME/fleet.toml, else the shipped example (its paths then start at HOME)."""
    if path is not None:
        return _load(path, path.parent, is_example=False)
    if home.fleet.exists():
        is_shipped_one = home.fleet.resolve() == shipped("data", "fleet.toml").resolve()
        return _load(home.fleet, home.root, is_example=is_shipped_one)
    return _load(shipped("data", "fleet.toml"), home.root, is_example=True)


def _load(path: Path, base: Path, *, is_example: bool) -> LoadedFleet:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"fleet file {path} cannot be read ({error.strerror}); name one with --fleet") from error
    try:
        document = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"fleet file {path} is not valid TOML: {error}") from error
    fleet = parse_fleet(document, str(path))
    _check_files(fleet, path, base)
    return LoadedFleet(fleet, path, base, hashlib.sha256(raw).hexdigest(), is_example)


def _check_files(fleet: Fleet, path: Path, base: Path) -> None:
    """ConfigError where a calibration file that the fleet file names is not there."""
    for deployment in fleet.deployments:
        if deployment.calibration is not None and not (base / deployment.calibration).is_file():
            raise ConfigError(
                f"{path}: deployment '{deployment.name}': calibration {base / deployment.calibration} does not exist; "
                "make it with kvledger calibrate, or leave the key out"
            )


def check_prices(loaded: LoadedFleet, catalog: Catalog) -> None:
    """ConfigError where `[prices]` names a GPU that the catalog does not have."""
    known = catalog.gpu_names() if loaded.fleet.prices else []
    for gpu in loaded.fleet.prices:
        if gpu not in known:
            raise ConfigError(f"{loaded.path}: [prices] '{gpu}' is no GPU of the catalog{nearest(gpu, known)}")
