"""The state of an installation: everything that a run would stumble over, found before it runs, nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.checks.home_state import home_state
from flows.checks.installation import installation
from flows.checks.surroundings import surroundings
from flows.fleet import load_fleet
from flows.home import Home
from transforms.errors import KvledgerError

if TYPE_CHECKING:
    from pathlib import Path

    from flows.checks.check import Check
    from flows.fleet import LoadedFleet


def examine(root: Path, fleet: Path | None) -> list[Check]:
    """All findings on the home at `root` and the fleet file `fleet` (default: as every command finds it)."""
    home = Home(root)
    loaded: LoadedFleet | KvledgerError
    try:
        loaded = load_fleet(fleet, home)
    except KvledgerError as error:
        loaded = error
    return [*installation(_zones(loaded)), *home_state(home), *surroundings(home, loaded)]


def _zones(loaded: LoadedFleet | KvledgerError) -> list[str]:
    if isinstance(loaded, KvledgerError):
        return []
    named = (source.timezone for source in loaded.fleet.sources)
    return [loaded.fleet.planning.timezone, *(zone for zone in named if zone is not None)]
