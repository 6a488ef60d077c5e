"""`kvledger plan`: the planner alone, on the published warehouse; its tables and marts are published anew."""

from __future__ import annotations

from flows.commands.options import (
    DEFAULT_HOME,
    FleetOption,
    HomeOption,
    JsonOption,
    PngOption,
    WaitOption,
    WeekOption,
)
from flows.home import locked
from flows.log import log_to_home
from flows.printing import print_json, print_line


def plan(
    week: WeekOption = None,
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    wait: WaitOption = 0.0,
    png: PngOption = False,
    json: JsonOption = False,
) -> None:
    """Plan one week on the published warehouse, without reading logs again: GPUs needed per deployment, and why."""
    from flows.cluster import cluster_asked
    from flows.commands.opening import open_home_and_fleet
    from flows.execution import execution

    place, loaded = open_home_and_fleet(home, fleet)
    with locked(place, wait), execution(place, no_prefect=cluster_asked() is None) as way:
        log_to_home(place)
        from flows.catalog import load_catalog
        from flows.pictures import pictures
        from flows.plan import plan as plan_published
        from flows.progress import progress
        from flows.report import report

        catalog = load_catalog(place)
        chosen = way.run("plan", lambda stages: plan_published(place, loaded, catalog, week, progress, stages.executor))
        reported = report(place, chosen, loaded.path)
        drawn = pictures(reported) if png else []
    if json:
        print_json(reported.summary)
        return
    for line in reported.decision:
        print_line(line)
    print_line(f"report: {reported.html}")
    for path in drawn:
        print_line(f"picture: {path}")
