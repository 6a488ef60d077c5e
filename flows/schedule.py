"""What runs by itself: the weekly review and the daily ingest, when, and what one such run does.

`kvledger serve` has Prefect start `run_scheduled` in a process of its own at each time. It takes the home's lock (runs
never overlap, whoever starts them), ingests, and reviews the last ISO week that had ended at the scheduled time, so
that a run at Monday six does not report on Monday. A missed week is caught up where asked: every week since the first
report that has requests and no report, oldest first. Started again, or started late, a run ends in the same bytes.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.fleet import load_fleet
from flows.home import locked, open_home
from flows.lake import request_days
from flows.lake_days import weeks_of
from flows.log import LOGGER, log_to_home
from flows.older_plans import older_plans
from flows.review import check_request, ingest_line, ingest_logs, review_lake
from flows.sources import check_sources
from transforms.workload import week_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.execution import Stages
    from flows.fleet import LoadedFleet
    from flows.home import Home

REVIEW, INGEST = "review", "ingest"
FLOW = "flows.orchestration.scheduled"
"""Where Prefect finds the flow: the same in a checkout and in a wheel."""

WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Planned:
    """One deployment of Prefect: what runs, when (a cron line in a time zone), on which home and fleet file."""

    name: str
    cron: str
    timezone: str
    parameters: dict[str, Any]
    description: str


@dataclass(frozen=True)
class Ran:
    """What a scheduled run did, as lines, and the decisions it came to, one row a deployment and week."""

    lines: list[str] = field(default_factory=list)
    decision: list[dict[str, Any]] = field(default_factory=list)


def planned_runs(home: Home, loaded: LoadedFleet, *, is_catching_up: bool) -> list[Planned]:
    """The deployments that the fleet file's `[schedule]` asks for; what it leaves empty never runs."""
    schedule = loaded.fleet.schedule
    zone = schedule.timezone or loaded.fleet.planning.timezone
    place = {"home": str(home.root.resolve()), "fleet": str(loaded.path.resolve())}
    wanted = (
        ("weekly-review", schedule.review, REVIEW, "Ingest, plan and report the last week that ended"),
        ("daily-ingest", schedule.ingest, INGEST, "Read new logs into the lake"),
    )
    return [
        Planned(name, cron, zone, {"command": command, **place, "is_catching_up": is_catching_up}, words)
        for name, cron, command, words in wanted
        if cron
    ]


def run_scheduled(stages: Stages, parameters: dict[str, Any], due_at: datetime) -> Ran:
    """What the run of these parameters, due at `due_at`, did; BusyError where another run holds the home all along."""
    home = open_home(Path(parameters["home"]))
    log_to_home(home)
    LOGGER.info("%s, due %s", parameters["command"], due_at.isoformat(timespec="minutes"))
    loaded = load_fleet(Path(parameters["fleet"]), home)
    is_review = parameters["command"] == REVIEW
    if is_review:
        check_request(home, loaded, week=None)
    else:
        check_sources(loaded.fleet.sources, home.catalog, loaded.path)
    with ExitStack() as opened:
        stages.run("lock", lambda: opened.enter_context(locked(home)))
        line = ingest_line(ingest_logs(stages, home, loaded))
        if not is_review:
            return Ran([line])
        weeks = weeks_due(request_days(home), _reported(home), due_at, is_catching_up=parameters["is_catching_up"])
        return _reviewed(stages, home, loaded, weeks, [line, *silent_week(weeks[-1], due_at)])


def silent_week(newest: str | None, due_at: datetime) -> list[str]:
    """A warning where the ISO week that had last ended at `due_at` has no requests: `newest`, an older one, is last."""
    (ended,) = weeks_of([(due_at - WEEK).date()])
    if newest is None or newest >= ended:
        return []
    return [f"warning: {ended} has no requests; this is {newest}, look whether the logs still arrive"]


def weeks_due(
    days: Sequence[str], reported: Sequence[str], due_at: datetime, *, is_catching_up: bool
) -> list[str | None]:
    """The ISO weeks to review, oldest first; [None], the latest there is, where none had ended at `due_at`.

    `days` have requests (YYYY-MM-DD, UTC), `reported` are weeks that have a report.
    """
    weeks = sorted(weeks_of(map(date.fromisoformat, days)))
    ended: list[str | None] = [week for week in weeks if week_start(week) + WEEK <= due_at]
    if not ended:
        return [None]
    if not (is_catching_up and reported):
        return ended[-1:]
    missed = (week for week in ended[:-1] if week not in reported and str(week) > min(reported))
    return [*missed, ended[-1]]


def project_file(planned: Sequence[Planned]) -> str:
    """A `prefect.yaml` that registers the same runs with a Prefect server and a process work pool."""
    head = (
        "# kvledger serve --print-project > prefect.yaml, then, with PREFECT_API_URL naming your server:\n"
        "#   prefect work-pool create kvledger --type process\n"
        "#   prefect work-pool set-concurrency-limit kvledger 1\n"
        "#   prefect deploy --all\n"
        "#   prefect worker start --pool kvledger\n"
        "name: kvledger\n"
        "pull:\n"
        "- prefect.deployments.steps.set_working_directory:\n"
        f"    directory: {json.dumps(str(Path.cwd()))}\n"
        "deployments:\n"
    )
    return head + "".join(map(_entry, planned))


def _entry(run: Planned) -> str:
    """One deployment as YAML; texts are JSON strings, which YAML 1.2 reads as they are."""
    parameters = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in run.parameters.items())
    return (
        f"- name: {run.name}\n"
        f"  description: {json.dumps(run.description)}\n"
        f"  entrypoint: {FLOW}\n"
        "  schedules:\n"
        f"  - cron: {json.dumps(run.cron)}\n"
        f"    timezone: {json.dumps(run.timezone)}\n"
        "  concurrency_limit:\n"
        "    limit: 1\n"
        "    collision_strategy: ENQUEUE\n"
        f"  parameters:\n{parameters}"
        "  work_pool:\n"
        "    name: kvledger\n"
    )


def _reviewed(stages: Stages, home: Home, loaded: LoadedFleet, weeks: Sequence[str | None], lines: list[str]) -> Ran:
    decision = []
    for week in weeks:
        reported, link = review_lake(stages, home, loaded, week)
        summary = reported.summary
        lines += [*reported.decision, f"report: {link}"]
        decision += [{"week": summary["week"], **row} for row in summary["decision"]]
    if weeks:
        lines += [f"warning: {note.text}" for note in older_plans(home)]
    return Ran(lines, decision)


def _reported(home: Home) -> list[str]:
    """Weeks that have a report."""
    return sorted(path.parent.name.removeprefix("week=") for path in home.reports.glob("week=*/review.html"))
