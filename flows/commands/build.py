"""`kvledger build`: the warehouse brought up to date with the lake, or anew; plans are taken over as they are."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated

import typer

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
from flows.printing import print_json, print_line, print_note
from transforms.errors import ConfigError

if TYPE_CHECKING:
    from flows.execution import Stages
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.lake_days import Span
    from flows.renewal import Renewed

FirstOption = Annotated[
    str | None, typer.Option("--from", metavar="DATE", help="First UTC day to build; others stay as built.")
]
LastOption = Annotated[str | None, typer.Option("--to", metavar="DATE", help="Last UTC day to build.")]
AnewOption = Annotated[bool, typer.Option("--anew", help="All days anew, not only those that changed.")]


def build(
    home: HomeOption = DEFAULT_HOME,
    fleet: FleetOption = None,
    first: FirstOption = None,
    last: LastOption = None,
    anew: AnewOption = False,
    wait: WaitOption = 0.0,
    no_prefect: NoPrefectOption = False,
    json: JsonOption = False,
) -> None:
    """Build the warehouse from the lake: only what hangs on days that changed, and all of it the first time."""
    from flows.commands.opening import open_home_and_fleet
    from flows.execution import execution

    span = _span(first, last)
    if anew and not span.is_all:
        raise ConfigError("--anew builds all days; leave out --from and --to")
    place, loaded = open_home_and_fleet(home, fleet)
    with locked(place, wait), execution(place, no_prefect=no_prefect) as way:
        log_to_home(place)
        renewed = way.run("build", lambda stages: _build(stages, place, loaded, span, is_anew=anew))
    _print(place, renewed, span, json=json)


def _span(first_text: str | None, last_text: str | None) -> Span:
    from flows.lake_days import Span

    first, last = _day("--from", first_text), _day("--to", last_text)
    if first and last and first > last:
        raise ConfigError(f"--from {first} is after --to {last}; give the earlier day first")
    return Span(first, last)


def _day(option: str, text: str | None) -> date | None:
    """The day that `text` names; ConfigError where it is none of the calendar."""
    if text is None:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        raise ConfigError(f"{option} {text}: no day of the calendar; write it as YEAR-MONTH-DAY, 2026-11-16") from None


def _build(stages: Stages, home: Home, fleet: LoadedFleet, span: Span, *, is_anew: bool) -> Renewed | None:
    from flows.build import build_facts, build_marts
    from flows.catalog import load_catalog
    from flows.facts_id import facts_due
    from flows.progress import progress
    from flows.warehouse import drafting, publish

    catalog = load_catalog(home)
    due = facts_due(home, fleet, catalog, span, is_anew=is_anew)
    with drafting(home, copy_published=due.stale is not None) as draft:
        renewed = stages.run("facts", build_facts, draft, home, fleet, catalog, progress, due)
        stages.run("marts", build_marts, draft, home, progress)
        stages.run("publish", publish, draft, fleet.fleet.warehouse.keep_versions)
    return renewed


def _print(home: Home, renewed: Renewed | None, asked_for: Span, *, json: bool) -> None:
    from flows.older_plans import older_plans
    from flows.query import asked

    older = older_plans(home)
    with asked(home, "select week, requests from mart_coverage order by week") as answer:
        weeks = list(answer.rows)
    if json:
        counts = [{"week": week, "requests": count} for week, count in weeks]
        told = [asdict(note) for note in older]
        built = {"warehouse": str(home.warehouse), "weeks": counts, "renewed": _as_object(renewed), "warnings": told}
        print_json(built)
        return
    requests = sum(count for _, count in weeks)
    weeks_built = weeks[0][0] if len(weeks) == 1 else f"{len(weeks)} weeks, {weeks[0][0]} to {weeks[-1][0]}"
    print_line(f"built: {requests:,} requests in {weeks_built}")
    print_line(f"renewed: {_in_words(renewed, asked_for)}")
    print_line(f"warehouse: {home.warehouse}")
    for note in older:
        print_note(f"warning: {note.text}")


def _as_object(renewed: Renewed | None) -> dict[str, object] | None:
    """What was renewed as JSON; None where everything was made anew."""
    if renewed is None:
        return None
    return {
        "days": [str(day) for day in renewed.days],
        "weeks": sorted(renewed.weeks),
        "left_days": [str(day) for day in renewed.left],
        "written_rows": renewed.written_rows,
    }


def _in_words(renewed: Renewed | None, asked_for: Span) -> str:
    if renewed is None:
        others = "; others of the lake wait for a build without --from and --to"
        return "all days, anew" if asked_for.is_all else f"the days asked for, anew{others}"
    days = len(renewed.days)
    named = f" ({renewed.days[0]} to {renewed.days[-1]})" if days > 1 else f" ({renewed.days[0]})" if days else ""
    left = f"; {len(renewed.left):,} other days of the lake wait for a build without --from and --to"
    rows = renewed.written_rows.get("fct_requests", 0)
    words = f"{days:,} day{'' if days == 1 else 's'}{named}, {rows:,} requests written"
    return words + (left if renewed.left else "")
