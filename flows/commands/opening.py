"""What most commands begin with: the home, and the fleet file that holds for it."""

from __future__ import annotations

from pathlib import Path

from flows.fleet import LoadedFleet, load_fleet
from flows.home import Home, open_home
from flows.printing import print_note


def open_home_and_fleet(home: Path, fleet: Path | None) -> tuple[Home, LoadedFleet]:
    """The home at `home` and the fleet file `fleet`, or the home's own, or the example, which is said in a note."""
    loaded = load_fleet(fleet, Home(home))
    place = open_home(home)
    if loaded.is_example:
        print_note(
            f"fleet: the example ({loaded.path}), whose logs kvledger sample makes; "
            f"write your own to {place.fleet} or name it with --fleet"
        )
    return place, loaded
