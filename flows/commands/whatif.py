"""`kvledger whatif`: the same traffic under changed settings, beside today."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import DEFAULT_HOME, FleetOption, HomeOption, JsonOption, WaitOption, WeekOption
from flows.commands.setting_list import whatif_settings
from flows.home import locked
from flows.log import log_to_home
from flows.printing import print_json, print_line

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        callback=whatif_settings,
        help="KEY=VALUE of the engine, objective, planning or replay; several make one scenario; help lists the keys.",
    ),
]
ScenarioOption = Annotated[
    list[str] | None, typer.Option("--scenario", help="Scenario file.toml, or the name of one that ships.")
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option("--sweep", help="KEY=FIRST:LAST:xFACTOR, KEY=FIRST:LAST:+STEP or KEY=V1,V2,…: a scenario each."),
]
ScaleOption = Annotated[
    float | None, typer.Option("--scale", help="Times as many sessions: the same as --set rate_scale=FACTOR.")
]
DeploymentOption = Annotated[str | None, typer.Option("--deployment", help="This deployment only; default: all.")]
OutputOption = Annotated[Path | None, typer.Option("--output", help="HTML report; default: in HOME/reports.")]


def whatif(
    *,
    settings: SetOption = None,
    scenarios: ScenarioOption = None,
    sweeps: SweepOption = None,
    scale: ScaleOption = None,
    deployment: DeploymentOption = None,
    week: WeekOption = None,
    output: OutputOption = None,
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    wait: WaitOption = 0.0,
    json: JsonOption = False,
) -> None:
    """Replay a week's traffic under changed settings: who is refused, how fast, how many GPUs, beside today."""
    from flows.cluster import cluster_asked
    from flows.commands.opening import open_home_and_fleet
    from flows.execution import execution

    place, loaded = open_home_and_fleet(home, fleet)
    with locked(place, wait), execution(place, no_prefect=cluster_asked() is None) as way:
        log_to_home(place)
        from flows.progress import progress
        from flows.whatif import Asked, typed
        from flows.whatif import whatif as ask
        from flows.whatif_report import whatif_report

        asked = Asked(settings or (), scenarios or (), sweeps or (), scale, deployment, week)
        told = way.run("whatif", lambda stages: ask(place, loaded, asked, progress, stages.executor))
        reported = whatif_report(place, loaded, told, typed(asked), output)
    if json:
        print_json(reported.summary)
        return
    for line in reported.decision:
        print_line(line)
    print_line(f"report: {reported.html}")
