"""Reads the fleet file: the one named, else the home's, else the shipped example."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.shipped import shipped
from transforms.errors import ConfigError
from transforms.fleet import Fleet, parse_fleet

if TYPE_CHECKING:
    from pathlib import Path

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
    return LoadedFleet(parse_fleet(document, str(path)), path, base, hashlib.sha256(raw).hexdigest(), is_example)
