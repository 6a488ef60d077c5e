"""`kvledger review`: the main job, from the logs the fleet file names to the decision and the report."""

from __future__ import annotations

from flows.commands.options import (
    DEFAULT_HOME,
    FleetOption,
    HomeOption,
    JsonOption,
    NoPrefectOption,
    PngOption,
    WaitOption,
    WeekOption,
)
from flows.home import locked
from flows.log import log_to_home
from flows.printing import print_json, print_line, print_note


def review(
    week: WeekOption = None,
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    wait: WaitOption = 0.0,
    no_prefect: NoPrefectOption = False,
    png: PngOption = False,
    json: JsonOption = False,
) -> None:
    """Ingest, build, plan and report one week: how many GPUs each deployment needs, and why."""
    from flows.commands.opening import open_home_and_fleet
    from flows.execution import execution
    from flows.pictures import pictures
    from flows.review import check_request, review_week

    place, loaded = open_home_and_fleet(home, fleet)
    check_request(place, loaded, week)
    with locked(place, wait), execution(place, no_prefect=no_prefect) as way:
        log_to_home(place)
        reviewed = way.run("review", lambda stages: review_week(stages, place, loaded, week))
        drawn = pictures(reviewed.report) if png else []
    for note in reviewed.notes:
        print_note(f"warning: {note.text}")
    if json:
        print_json(reviewed.summary())
        return
    print_line(reviewed.ingested)
    for line in reviewed.report.decision:
        print_line(line)
    print_line(f"report: {reviewed.link}")
    for path in drawn:
        print_line(f"picture: {path}")
