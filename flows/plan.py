"""The plan of a week: facts from a warehouse into the pure planner, its tables as Parquet under HOME/plans."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import as_completed
from importlib.metadata import version
from typing import TYPE_CHECKING

import polars as pl

from flows.build import rebuild_marts
from flows.calibrations import calibration_files, calibration_path
from flows.damage import plan_damage_named
from flows.deployments import deployment_row, place
from flows.facts_id import code_sha256, has_current_facts
from flows.kernel_cache import use_kernel_cache
from flows.lake import manifest_path
from flows.lake_files import write_table
from flows.plan_facts import attempts_laid, lay_facts
from flows.plan_part import PlanPart, plan_part
from flows.printing import print_note
from flows.sites import SEED
from flows.warehouse import lent_memory, published
from flows.weeks import week_before, work_per_s
from transforms.errors import DataError, HomeError
from transforms.planner.sizing.plan_tables import PLAN_GRAINS, PLAN_TABLES, empty_plan_table
from transforms.workload import week_start

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    import duckdb

    from flows.catalog import Catalog
    from flows.deployments import Placed
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.progress import Progress

WORKER_ATTEMPTS = 10_000
"""Fewer attempts in all are planned sooner here than workers start."""

SCENARIOS = "plan_scenarios"
"""The plan table that what-ifs fill, not plans."""

FORECASTS = "plan_forecasts"
"""The plan table that stands as it was made once a later week has requests: what else could be held to the fact."""

MORE_S = 3600.0
"""Seconds that a week is covered by more, from which a forecast of it is made again: it was of a part of the week."""

_PLAN_FACTS = ("deployment_id", "kv_capacity_bytes", "kv_token_bytes", "max_num_seqs_requests", "gpu_id", "replicas")
"""Columns of dim_deployments that a plan must share with the warehouse it reads."""


def plan(  # noqa: PLR0917 - the arguments of every stage, and the executor
    home: Home, fleet: LoadedFleet, catalog: Catalog, week: str | None, progress: Progress, executor: Executor
) -> str:
    """The week that was planned (default: the latest) from the published warehouse, its marts published anew."""
    if not has_current_facts(home, fleet, catalog):
        with published(home):  # says so where there is no warehouse at all
            raise DataError(
                f"the warehouse was built from another fleet file, lake, catalog or version than those of now "
                f"({fleet.path}); run kvledger build (or kvledger review) first"
            )
    with published(home, is_locked=False) as connection:
        chosen = plan_week(connection, home, fleet, catalog, week, progress, executor)
    rebuild_marts(home, progress, fleet.fleet.warehouse.keep_versions)
    return chosen


def plan_week(  # noqa: PLR0917 - the arguments of every stage, connection and executor
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    fleet: LoadedFleet,
    catalog: Catalog,
    week: str | None,
    progress: Progress,
    executor: Executor,
) -> str:
    """The week that was planned (default: the latest with rows), its tables in HOME/plans; deployments in parallel.

    The week with rows before it is planned too where it has no plan of the same inputs, so that like is held to like.
    DataError where the week has no rows or the facts were built for another fleet file.
    """
    chosen, earlier = weeks_of(connection, week)
    weeks = [w for w in (earlier, chosen) if w and (w == chosen or not _is_planned(home, fleet, catalog, w))]
    check_facts(connection, [place(deployment, fleet, catalog) for deployment in fleet.fleet.deployments])
    use_kernel_cache(print_note)
    aside = home.staging / "plan"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        parts = [part for each in weeks for part in _parts(connection, home, fleet, catalog, each)]
        with lent_memory(connection, home):
            _plan_parts(parts, progress, executor)
        latest = weeks_of(connection, None)[0]
        for each in weeks:
            plans = [part.tables for part in parts if part.week == each]
            made = made_forecasts(home, each, covered_s_of(connection, each)) if each < latest else None
            _keep(home, each, plans, made, aside / "whole" / each)
    except OSError as error:
        raise HomeError(
            f"plans in {home.root} cannot be written ({error.strerror or error}); free some disk or use --home"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return chosen


def _parts(
    connection: duckdb.DuckDBPyConnection, home: Home, fleet: LoadedFleet, catalog: Catalog, week: str
) -> list[PlanPart]:
    """What each deployment's plan of `week` is made from, its facts laid aside."""
    aside, earlier = home.staging / "plan", week_before(connection, week)
    run_id, covered_s = run_id_of(home, fleet, catalog, week), covered_s_of(connection, week)
    parts = []
    for number, deployment in enumerate(fleet.fleet.deployments):
        facts = {each: aside / "facts" / each / str(number) for each in (week, earlier) if each}
        for each, folder in facts.items():
            if not folder.is_dir():
                lay_facts(connection, deployment.name, each, folder)
        parts.append(
            PlanPart(
                home=home,
                fleet=fleet,
                deployment=deployment,
                week=week,
                run_id=run_id,
                facts=facts[week],
                earlier=None if earlier is None else (earlier, facts[earlier]),
                covered_s=covered_s,
                work_per_s=work_per_s(connection, deployment.name, week),
                tables=aside / "tables" / week / str(number),
            )
        )
    return parts


def _plan_parts(parts: Sequence[PlanPart], progress: Progress, executor: Executor) -> None:
    """Plan all `parts`, in workers where that is worth their start."""
    is_worth_it = len(parts) > 1 and sum(attempts_laid(part.facts) for part in parts) >= WORKER_ATTEMPTS
    with progress("planning", len(parts)) as advance:
        if not is_worth_it:
            for part in parts:
                plan_part(part)
                advance()
            return
        for done in as_completed([executor.submit(plan_part, part) for part in parts]):
            done.result()
            advance()


def published_plan(home: Home, fleet: LoadedFleet, catalog: Catalog, week: str | None) -> str | None:
    """The week to review, where the published warehouse holds its plan and the one before under the inputs of now."""
    with published(home) as connection:
        chosen, earlier = weeks_of(connection, week)
        held = dict(connection.execute("select distinct week, run_id from plan_replicas").fetchall())
    wanted = {each: run_id_of(home, fleet, catalog, each) for each in (earlier, chosen) if each}
    return chosen if wanted.items() <= held.items() else None


def weeks_of(connection: duckdb.DuckDBPyConnection, week: str | None) -> tuple[str, str | None]:
    """`week`, checked, or the latest with rows, and the one with rows before it; DataError names the covered range."""
    covered = connection.execute(
        "select week, covered_from_at, covered_to_at from dist_coverage order by week"
    ).fetchall()
    if not covered:
        raise DataError("the logs hold no request with a time in any week; run kvledger ingest with a log first")
    known = [str(row[0]) for row in covered]
    if week is not None:
        week_start(week)
        if week not in known:
            raise DataError(
                f"week {week} has no requests; the logs cover {covered[0][1]:%Y-%m-%d} to {covered[-1][2]:%Y-%m-%d} "
                f"({known[0]} to {known[-1]})"
            )
    place_of = len(known) - 1 if week is None else known.index(week)
    return known[place_of], known[place_of - 1] if place_of else None


def covered_s_of(connection: duckdb.DuckDBPyConnection, week: str) -> float:
    """Seconds of `week` that the logs cover."""
    rows = connection.execute("select covered_s from dist_coverage where week = ?", [week]).fetchall()
    return float(rows[0][0]) if rows and rows[0][0] is not None else 0.0


def check_facts(connection: duckdb.DuckDBPyConnection, placed: list[Placed]) -> None:
    """Refuse facts that were built for other deployments than those of the fleet file."""
    wanted = sorted(tuple(deployment_row(one)[column] for column in _PLAN_FACTS) for one in placed)
    built = connection.execute(f"select {', '.join(_PLAN_FACTS)} from dim_deployments order by 1").fetchall()  # noqa: S608
    if wanted != [tuple(row) for row in built]:
        raise DataError("the warehouse was built for another fleet file; run kvledger build (or kvledger review) first")


def run_id_of(home: Home, fleet: LoadedFleet, catalog: Catalog, week: str) -> str:
    """First 12 hex digits of sha256 over everything a plan depends on."""
    deployments = fleet.fleet.deployments
    digest = hashlib.sha256()
    for part in (
        fleet.sha256,
        hashlib.sha256(manifest_path(home).read_bytes()).hexdigest(),
        catalog.sha256([d.gpu for d in deployments], [d.model for d in deployments], fleet.base),
        *(hashlib.sha256(path.read_bytes()).hexdigest() for path in _calibrations(fleet, catalog)),
        version("kvledger"),
        code_sha256(),
        week,
        "today",
        str(SEED),
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:12]


def _calibrations(fleet: LoadedFleet, catalog: Catalog) -> list[Path]:
    """Calibration files a plan rests on: the catalog's and the deployments' own."""
    own = [calibration_path(deployment.calibration, fleet) for deployment in fleet.fleet.deployments]
    return [*calibration_files(catalog), *(path for path in own if path is not None)]


def _is_planned(home: Home, fleet: LoadedFleet, catalog: Catalog, week: str) -> bool:
    """Whether HOME/plans has `week` under the inputs of now."""
    path = plan_folder(home, week) / "plan_replicas.parquet"
    if not path.is_file():
        return False
    with plan_damage_named(home):
        found = set(pl.read_parquet(path, columns=["run_id"])["run_id"])
    return found == {run_id_of(home, fleet, catalog, week)}


def plan_folder(home: Home, week: str) -> Path:
    """Folder with the plan tables of `week`."""
    return home.plans / f"week={week}"


def _keep(home: Home, week: str, plans: Sequence[Path], made: pl.DataFrame | None, aside: Path) -> None:
    """Put the plans of all deployments together, every table of `week` aside first, and rename each into place.

    Forecasts `made` before stand in the place of those of the same deployments.
    """
    folder = plan_folder(home, week)
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLAN_TABLES:
        table = _table(name, plans) if name != SCENARIOS else former_scenarios(home, week)
        if name == FORECASTS and made is not None:
            table = _with_made(table, made, _table("plan_replicas", plans)["deployment_id"].unique().to_list())
        write_table(table, aside / f"{name}.parquet")
    for name in PLAN_TABLES:
        (aside / f"{name}.parquet").replace(folder / f"{name}.parquet")


def former_scenarios(home: Home, week: str) -> pl.DataFrame:
    """Rows of plan_scenarios of `week`: what-ifs outlive the plan they were asked beside."""
    return _former(home, week, SCENARIOS)


def made_forecasts(home: Home, week: str, covered_s: float) -> pl.DataFrame:
    """Rows of plan_forecasts of `week` as they were made, from all of the `covered_s` seconds it is known for now."""
    return _former(home, week, FORECASTS).filter(pl.col("covered_s") + MORE_S >= covered_s)


def _former(home: Home, week: str, name: str) -> pl.DataFrame:
    path, schema = plan_folder(home, week) / f"{name}.parquet", PLAN_TABLES[name]
    if not path.is_file():
        return empty_plan_table(name)
    with plan_damage_named(home):
        found = pl.read_parquet(path)
    return found.select(
        (pl.col(column) if column in found.columns else pl.lit(None)).cast(dtype).alias(column)
        for column, dtype in schema.items()
    )


def _with_made(forecasts: pl.DataFrame, made: pl.DataFrame, deployments: Sequence[str]) -> pl.DataFrame:
    """`forecasts` with those that were `made` for one of `deployments` in the place of its own."""
    stands = made.filter(pl.col("deployment_id").is_in(deployments))
    fresh = forecasts.filter(~pl.col("deployment_id").is_in(stands["deployment_id"].unique().to_list()))
    return pl.concat([stands, fresh]).sort(PLAN_GRAINS[FORECASTS], nulls_last=True, maintain_order=True)


def _table(name: str, plans: Sequence[Path]) -> pl.DataFrame:
    tables = [pl.read_parquet(plan / f"{name}.parquet") for plan in plans]
    return pl.concat(tables).sort(PLAN_GRAINS[name], nulls_last=True, maintain_order=True)
