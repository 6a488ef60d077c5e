"""One deployment's plan of one week, from facts that the planning process laid aside. Runs in a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.calibrations import deployment_calibration
from flows.catalog import load_catalog
from flows.deployments import place
from flows.kernel_cache import use_kernel_cache
from flows.lake_files import write_table
from flows.plan_facts import read_workload
from flows.sites import site_of
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.planner.weeks.week_tables import Weeks, with_weeks
from transforms.planner.weeks.week_taken import taken_week

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flows.fleet import LoadedFleet
    from flows.home import Home
    from transforms.fleet import Deployment


@dataclass(frozen=True)
class PlanPart:
    """What a worker needs to plan one deployment and week; facts and tables are files, all else is small."""

    home: Home
    fleet: LoadedFleet
    deployment: Deployment
    week: str
    run_id: str
    facts: Path
    """Folder with the facts of the deployment's week."""
    earlier: tuple[str, Path] | None
    """The week before and its facts; None where it has no rows."""
    covered_s: float
    work_per_s: Mapping[str, float]
    tables: Path
    """Folder that the plan's tables go to."""


def plan_part(part: PlanPart) -> str:
    """Name of the deployment that was planned, its tables written to `part.tables`."""
    use_kernel_cache()
    catalog, planning = load_catalog(part.home), part.fleet.fleet.planning
    placed = place(part.deployment, part.fleet, catalog)
    site = site_of(placed, part.fleet, catalog, part.covered_s)
    name = part.deployment.name
    earlier = None
    if part.earlier is not None:  # before the week itself: the two are never in memory at once
        earlier = taken_week(read_workload(part.earlier[1], name, part.earlier[0]), site.replica)
    workload = read_workload(part.facts, name, part.week)
    plan = plan_deployment(workload, site, deployment_calibration(placed, part.fleet, catalog), part.run_id)
    weeks = Weeks(
        earlier=earlier,
        work_per_s=part.work_per_s,
        horizon_weeks=planning.horizon_weeks,
        lead_time_days=planning.lead_time_days,
    )
    for table, rows in with_weeks(plan, workload, site, weeks, part.run_id).items():
        write_table(rows, part.tables / f"{table}.parquet")
    return name
