"""The main job: ingest, facts, plan, marts, audits, one publish, report. Each stage is called once, in this order."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flows.build import EVERY_DAY, build_facts, build_marts
from flows.catalog import load_catalog
from flows.deployments import place
from flows.facts_id import facts_due, has_current_facts
from flows.fleet import check_prices
from flows.ingest import IngestResult, ingest
from flows.notes import refusals
from flows.object_store import is_url
from flows.older_plans import older_plans
from flows.plan import plan_week, published_plan
from flows.progress import progress
from flows.publishing import publish_files
from flows.report import Reported, report
from flows.sites import site_of
from flows.sources import check_sources
from flows.warehouse import drafting, publish
from transforms.errors import ConfigError
from transforms.workload import week_start

if TYPE_CHECKING:
    from flows.catalog import Catalog
    from flows.execution import Stages
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.notes import Note


@dataclass(frozen=True)
class Reviewed:
    """What a review left behind, and what its ingest did in one line."""

    report: Reported
    ingested: str
    notes: list[Note]
    """Settings disproved, sources that changed, files refused, records rejected; plans older than their requests."""

    link: str
    """Where the report can be read: its URL if it was published, else its path."""

    def summary(self) -> dict[str, Any]:
        """The report's JSON object with what the ingest had to say among its warnings."""
        own = {warning["code"] for warning in self.report.summary["warnings"]}
        told = [{**asdict(note), "deployment": None} for note in self.notes if note.code not in own]
        return {**self.report.summary, "warnings": [*self.report.summary["warnings"], *told]}


def review_week(stages: Stages, home: Home, loaded: LoadedFleet, week: str | None) -> Reviewed:
    """The report of `week` (default: the latest) over all logs of the fleet file; the caller holds the lock."""
    ingested = ingest_logs(stages, home, loaded)
    reported, link = review_lake(stages, home, loaded, week)
    notes = [*ingested.warnings, *refusals(ingested.files), *older_plans(home)]
    return Reviewed(reported, ingest_line(ingested), notes, link)


def ingest_logs(stages: Stages, home: Home, loaded: LoadedFleet) -> IngestResult:
    """What became of all logs of the fleet file, now in the lake; the caller holds the lock."""
    return stages.run(
        "ingest",
        ingest,
        home,
        loaded.fleet.sources,
        base=loaded.base,
        privacy=loaded.fleet.privacy,
        progress=progress,
        executor=stages.executor,
    )


def review_lake(stages: Stages, home: Home, loaded: LoadedFleet, week: str | None) -> tuple[Reported, str]:
    """The report of `week` (default: the latest) over the lake as it is, and where it can be read."""
    catalog = load_catalog(home)
    is_current = has_current_facts(home, loaded, catalog)
    chosen = published_plan(home, loaded, catalog, week) if is_current else None
    if chosen is None:
        chosen = _publish_week(stages, home, loaded, catalog, week, is_current=is_current)
    reported = stages.run("report", report, home, chosen, loaded.path)
    link = str(reported.html)
    if loaded.fleet.publish.to:
        link = stages.run("publish files", publish_files, home, loaded.fleet.publish, chosen)
    return reported, link


def _publish_week(
    stages: Stages, home: Home, loaded: LoadedFleet, catalog: Catalog, week: str | None, *, is_current: bool
) -> str:
    """The week that was planned, in a warehouse published with its facts, plan and marts."""
    due = None if is_current else facts_due(home, loaded, catalog, EVERY_DAY)
    with drafting(home, copy_published=due is None or due.stale is not None) as draft:
        if due is not None:
            stages.run("facts", build_facts, draft, home, loaded, catalog, progress, due)
        chosen = stages.run("plan", plan_week, draft.connection, home, loaded, catalog, week, progress, stages.executor)
        stages.run("marts", build_marts, draft, home, progress)
        stages.run("publish", publish, draft, loaded.fleet.warehouse.keep_versions)
    return chosen


def check_request(home: Home, loaded: LoadedFleet, week: str | None) -> None:
    """Nothing, if the week can be meant and every deployment can exist; to be asked before anything is read."""
    if week is not None:
        week_start(week)
    if not loaded.fleet.deployments:
        raise ConfigError(f"fleet file {loaded.path} has no [[deployments]]; describe at least one")
    check_sources(loaded.fleet.sources, home.catalog, loaded.path)
    if loaded.fleet.publish.to and not is_url(loaded.fleet.publish.to):
        raise ConfigError(
            f"{loaded.path}: [publish] to = '{loaded.fleet.publish.to}' must begin with s3://, gs:// or az://"
        )
    catalog = load_catalog(home)
    check_prices(loaded, catalog)
    for deployment in loaded.fleet.deployments:
        site_of(place(deployment, loaded, catalog), loaded, catalog, covered_s=0.0)


def ingest_line(result: IngestResult) -> str:
    """One line on what an ingest did, in rows and files."""
    if not result.total("read"):
        return f"ingested: nothing new in {len(result.files)} files"
    counts = ", ".join(f"{name} {result.total(name):,}" for name in ("read", "loaded", "duplicates", "rejected"))
    return f"ingested: {counts} in {len(result.files)} files"
