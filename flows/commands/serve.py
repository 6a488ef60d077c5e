"""`kvledger serve`: the weekly review and the daily ingest by themselves, under Prefect."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, FleetOption, HomeOption, JsonOption
from flows.home import Home, locked
from flows.printing import print_json, print_line, print_note, write_out

CatchUpOption = Annotated[
    bool,
    typer.Option("--catch-up", help="Review once now; each review also does the weeks since the first that it missed."),
]
ProjectOption = Annotated[
    bool, typer.Option("--print-project", help="Print a prefect.yaml for a Prefect server with a process work pool.")
]


def serve(
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    catch_up: CatchUpOption = False,
    print_project: ProjectOption = False,
    json: JsonOption = False,
) -> None:
    """Run the review every week and the ingest every day, as [schedule] of the fleet file says, until stopped."""
    from flows.commands.opening import open_home_and_fleet
    from flows.review import check_request
    from flows.schedule import planned_runs, project_file
    from flows.serving import serve_runs

    place, loaded = open_home_and_fleet(home, fleet)
    check_request(place, loaded, week=None)
    if not loaded.fleet.sources:
        print_note(
            f"fleet file {loaded.path} has no [[sources]]: nothing is read by itself, only what kvledger ingest PATH "
            "brings in is reviewed; put in where your logs lie"
        )
    planned = planned_runs(place, loaded, is_catching_up=catch_up)
    if print_project:
        write_out(project_file(planned))
        return
    place.schedule.mkdir(parents=True, exist_ok=True)
    with locked(Home(place.schedule)), serve_runs(place, planned, is_catching_up=catch_up) as serving:
        if json:
            print_json({"server": serving.url, "deployments": [vars(run) for run in planned]})
        else:
            for run in planned:
                print_line(f"{run.name}: {run.cron} ({run.timezone})")
            print_line(f"under Prefect at {serving.url}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            serving.until_stopped()
    print_note("stopped")
