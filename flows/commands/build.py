"""`kvledger build`: the warehouse anew from the lake; plans are taken over as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.commands.options import (
    DEFAULT_HOME,
    FleetOption,
    HomeOption,
    JsonOption,
    NoPrefectOption,
    WaitOption,
)
from flows.home import locked
from flows.log import log_to_home
from flows.printing import print_json, print_line

if TYPE_CHECKING:
    from pathlib import Path

    from flows.execution import Stages
    from flows.fleet import LoadedFleet
    from flows.home import Home


def build(
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    wait: WaitOption = 0.0,
    no_prefect: NoPrefectOption = False,
    json: JsonOption = False,
) -> None:
    """Build the warehouse from the lake: facts, distributions, marts, audits, one publish."""
    from flows.commands.opening import open_home_and_fleet
    from flows.execution import execution

    place, loaded = open_home_and_fleet(home, fleet)
    with locked(place, wait), execution(place, no_prefect=no_prefect) as way:
        log_to_home(place)
        path = way.run("build", lambda stages: _build(stages, place, loaded))
    _print(place, path, json=json)


def _build(stages: Stages, home: Home, fleet: LoadedFleet) -> Path:
    from flows.build import build_facts, build_marts
    from flows.catalog import load_catalog
    from flows.progress import progress
    from flows.warehouse import drafting, publish

    with drafting(home) as draft:
        stages.run("facts", build_facts, draft, home, fleet, load_catalog(home), progress)
        stages.run("marts", build_marts, draft, home, progress)
        return stages.run("publish", publish, draft)


def _print(home: Home, path: Path, *, json: bool) -> None:
    from flows.query import asked

    with asked(home, "select week, requests from mart_coverage order by week") as answer:
        weeks = list(answer.rows)
    if json:
        print_json({"warehouse": str(path), "weeks": [{"week": week, "requests": count} for week, count in weeks]})
        return
    requests = sum(count for _, count in weeks)
    span = weeks[0][0] if len(weeks) == 1 else f"{len(weeks)} weeks, {weeks[0][0]} to {weeks[-1][0]}"
    print_line(f"built: {requests:,} requests in {span}")
    print_line(f"warehouse: {path}")
