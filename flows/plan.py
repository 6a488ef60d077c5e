"""The plan of a week: facts from a warehouse into the pure planner, its tables as Parquet under HOME/plans."""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import polars as pl

from flows.build import rebuild_marts
from flows.calibrations import calibration_files, calibration_path, deployment_calibration
from flows.damage import plan_damage_named
from flows.deployments import deployment_row, place
from flows.facts_id import code_sha256, has_current_facts
from flows.kernel_cache import use_kernel_cache
from flows.lake import manifest_path
from flows.lake_files import write_table
from flows.printing import print_note
from flows.warehouse import published
from flows.weeks import weeks_before
from transforms.errors import DataError, HomeError
from transforms.planner.replay.replay_settings import kv_pool
from transforms.planner.sizing.gpus import Terms
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.planner.sizing.plan_replicas import Price, Site
from transforms.planner.sizing.plan_tables import PLAN_GRAINS, PLAN_TABLES, empty_plan_table
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.hardware import step_model
from transforms.planner.weeks.week_tables import with_weeks
from transforms.workload import ATTEMPT_COLUMNS, TOOL_WAIT_COLUMNS, make_workload, week_start

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from flows.catalog import Catalog
    from flows.deployments import Placed
    from flows.fleet import LoadedFleet
    from flows.home import Home
    from flows.progress import Progress
    from transforms.fleet import Engine, Slo
    from transforms.workload import Workload

    Named = tuple[str, float]

SEED = 20_240_101
"""Seed of every draw a plan makes; part of its run_id."""

SCENARIOS = "plan_scenarios"
"""The plan table that what-ifs fill, not plans."""

SLO_TARGETS = ("ttft_p95_s", "tpot_p95_s")

_PLAN_FACTS = ("deployment_id", "kv_capacity_bytes", "kv_token_bytes", "max_num_seqs_requests", "gpu_id", "replicas")
"""Columns of dim_deployments that a plan must share with the warehouse it reads."""


def plan(home: Home, fleet: LoadedFleet, catalog: Catalog, week: str | None, progress: Progress) -> str:
    """The week that was planned (default: the latest) from the published warehouse, its marts published anew."""
    if not has_current_facts(home, fleet, catalog):
        with published(home):  # says so where there is no warehouse at all
            raise DataError(
                f"the warehouse was built from another fleet file, lake, catalog or version than those of now "
                f"({fleet.path}); run kvledger build (or kvledger review) first"
            )
    with published(home) as connection:
        chosen = plan_week(connection, home, fleet, catalog, week, progress)
    rebuild_marts(home, progress, fleet.fleet.warehouse.keep_versions)
    return chosen


def plan_week(  # noqa: PLR0917 - the arguments of every stage, and the connection
    connection: duckdb.DuckDBPyConnection,
    home: Home,
    fleet: LoadedFleet,
    catalog: Catalog,
    week: str | None,
    progress: Progress,
) -> str:
    """The week that was planned (default: the latest with rows), its tables in HOME/plans.

    The week with rows before it is planned too where it has no plan of the same inputs, so that like is held to like.
    DataError where the week has no rows or the facts were built for another fleet file.
    """
    chosen, earlier = weeks_of(connection, week)
    weeks = [w for w in (earlier, chosen) if w and (w == chosen or not _is_planned(home, fleet, catalog, w))]
    placed = [place(deployment, fleet, catalog) for deployment in fleet.fleet.deployments]
    check_facts(connection, placed)
    use_kernel_cache(print_note)
    with progress("planning", len(weeks) * len(placed)) as advance:
        for each in weeks:
            run_id = run_id_of(home, fleet, catalog, each)
            covered_s = covered_s_of(connection, each)
            plans = []
            for one in placed:
                workload = read_workload(connection, one.deployment.name, each)
                calibration = deployment_calibration(one, fleet, catalog)
                site = site_of(one, fleet, catalog, covered_s)
                weeks_known = weeks_before(connection, one.deployment.name, each, fleet.fleet.planning, read_workload)
                planned = plan_deployment(workload, site, calibration, run_id)
                plans.append(with_weeks(planned, workload, site, weeks_known, run_id))
                advance()
            _write(home, each, plans)
    return chosen


def published_plan(home: Home, fleet: LoadedFleet, catalog: Catalog, week: str | None) -> str | None:
    """The week to review, where the published warehouse holds its plan and the one before under the inputs of now."""
    with published(home) as connection:
        chosen, earlier = weeks_of(connection, week)
        held = dict(connection.execute("select distinct week, run_id from plan_replicas").fetchall())
    wanted = {each: run_id_of(home, fleet, catalog, each) for each in (earlier, chosen) if each}
    return chosen if wanted.items() <= held.items() else None


def read_workload(connection: duckdb.DuckDBPyConnection, deployment_id: str, week: str) -> Workload:
    """Attempts of one deployment in `week`, those still running at its start, and its tool waits."""
    start = week_start(week).replace(tzinfo=None)
    named = {"deployment": deployment_id, "week": week, "start": start, "before": start - timedelta(days=7)}
    attempts = connection.sql(
        f"select {', '.join(ATTEMPT_COLUMNS)} from fct_attempts "  # noqa: S608
        "where deployment_id = $deployment and (week = $week "
        "or (arrived_at < $start and arrived_at >= $before and ended_at > $start)) "
        "order by arrived_at, source, request_id, attempt",
        params=named,
    ).pl()
    waits = connection.sql(
        f"select {', '.join(TOOL_WAIT_COLUMNS)} from fct_tool_waits "  # noqa: S608
        "where deployment_id = $deployment and week = $week order by arrived_at, session_id, agent_id, turn",
        params={"deployment": deployment_id, "week": week},
    ).pl()
    return make_workload(attempts, waits, deployment_id, week)


def site_of(placed: Placed, fleet: LoadedFleet, catalog: Catalog, covered_s: float) -> Site:
    """What the planner knows of one deployment: replica, clock, price, and how its GPUs are had."""
    engine, account, planning = placed.deployment.engine, placed.account, fleet.fleet.planning
    given = placed.deployment.given
    calibration = deployment_calibration(placed, fleet, catalog)
    step = step_model(placed.model.config, placed.model.model_id, placed.gpu, engine, calibration)
    replica = Replica(
        step=step,
        groups=account.groups,
        kv_token_bytes=account.bytes_per_token,
        kv_capacity_bytes=account.capacity_bytes,
        kv_capacity_tokens=account.capacity_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len_tokens=account.max_model_len,
        has_prefix_caching=engine.enable_prefix_caching,
        gpus=account.gpus,
        ttft_p95_s=placed.deployment.slo.ttft_p95_s,
        tpot_p95_s=placed.deployment.slo.tpot_p95_s,
        window_s=max(1, round(placed.window_s)),
        engine=engine,
        pool=kv_pool(account).pool,
        mixed_context_factor=calibration.mixed_context_factor,
    )
    return Site(
        replica=replica,
        now_replicas=placed.deployment.replicas,
        terms=Terms(account.gpus, placed.gpu.gpus_per_node, placed.gpu.is_whole_node, planning.spare_replicas),
        headroom_ratio=planning.headroom_ratio,
        price=_price(placed, fleet, catalog),
        memory_provenance=placed.memory.provenance["kv_bytes"],
        covered_s=covered_s,
        seed=SEED,
        step_error_ratio=calibration.tpot_error_ratio,
        assumed_slo=_assumed(placed.deployment.slo, SLO_TARGETS, given, "slo."),
        assumed_engine=_assumed(engine, placed.assumed_engine, frozenset(), ""),
    )


def _assumed(table: Slo | Engine, keys: tuple[str, ...], given: frozenset[str], prefix: str) -> tuple[Named, ...]:
    """Those of `keys` that `given` does not name, with the value they have."""
    return tuple((key, float(getattr(table, key))) for key in keys if prefix + key not in given)


def _price(placed: Placed, fleet: LoadedFleet, catalog: Catalog) -> Price | None:
    usd = placed.gpu_price_usd_per_hour
    if usd is None:
        return None
    if placed.gpu.name in fleet.fleet.prices:
        return Price(usd, "assumed", f"[prices] of {fleet.path.name}")
    prices = catalog.prices()
    return Price(usd, prices.provenance, prices.sources.get(placed.gpu.name, "catalog"))


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


def _write(home: Home, week: str, plans: list[dict[str, pl.DataFrame]]) -> None:
    """Write every plan table of `week` aside and rename each into place; HomeError where that cannot be done."""
    folder, aside = plan_folder(home, week), home.plans / f".writing-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in PLAN_TABLES:
            table = _table(name, plans) if name != SCENARIOS else former_scenarios(home, week)
            write_table(table, aside / f"{name}.parquet")
        for name in PLAN_TABLES:
            (aside / f"{name}.parquet").replace(folder / f"{name}.parquet")
    except OSError as error:
        raise HomeError(
            f"plans in {folder} cannot be written ({error.strerror}); free some disk or use --home"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def former_scenarios(home: Home, week: str) -> pl.DataFrame:
    """Rows of plan_scenarios of `week`: what-ifs outlive the plan they were asked beside."""
    path, schema = plan_folder(home, week) / f"{SCENARIOS}.parquet", PLAN_TABLES[SCENARIOS]
    if not path.is_file():
        return empty_plan_table(SCENARIOS)
    with plan_damage_named(home):
        found = pl.read_parquet(path)
    return found.select(
        (pl.col(name) if name in found.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def _table(name: str, plans: list[dict[str, pl.DataFrame]]) -> pl.DataFrame:
    return pl.concat([plan[name] for plan in plans]).sort(PLAN_GRAINS[name], nulls_last=True, maintain_order=True)
