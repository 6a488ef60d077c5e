"""After a load test: what the plan's model says of the very same requests, against what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from flows.catalog import load_catalog
from flows.commands.opening import open_home_and_fleet
from flows.deployments import place
from flows.kernel_cache import use_kernel_cache
from flows.printing import print_note
from flows.reading.rows import read_rows
from flows.sites import site_of
from transforms.errors import ConfigError, InputError, nearest
from transforms.planner.replay.engine import replay
from transforms.planner.replay.load_test import compared
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.sizing.replay_week import engine_settings, replica_costs, router_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from transforms.fleet import Source

PLANNED = "plan_replicas.parquet"


def calibrate_against(
    plan: Path, deployment: str | None, results: Sequence[tuple[Path, Source]], replicas: int, home: Path
) -> dict[str, Any]:
    """JSON of the comparison: the load of `results` on the deployment of `plan` (a folder of HOME/plans), replayed.

    `replicas` are those that took the load. ConfigError where plan, deployment or fleet file do not match.
    """
    planned = _planned(plan, deployment)
    opened, loaded = open_home_and_fleet(home, None)
    catalog = load_catalog(opened)
    found = next((one for one in loaded.fleet.deployments if one.name == planned["deployment_id"]), None)
    if found is None:
        raise ConfigError(f"{plan}: deployment '{planned['deployment_id']}' is not in {loaded.path} any more")
    replica = site_of(place(found, loaded, catalog), loaded, catalog, covered_s=0.0).replica
    rows = pl.concat([read_rows(path, source).rows for path, source in results], how="diagonal_relaxed")
    where = ", ".join(str(path) for path, _source in results)
    trace = replay_trace(rows.sort("arrived_at", maintain_order=True), where, is_causal=False)
    options = ReplayOptions(router=router_of(replica), requested_output="ignore", failure_ends_session=False)
    settings = engine_settings(replica, trace, options).on_replicas(replicas)
    use_kernel_cache(print_note)
    result = replay(trace.columns, settings, replica_costs(replica))
    try:
        comparison = compared(trace, result)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return {
        "plan": str(plan),
        "week": planned["week"],
        "run_id": planned["run_id"],
        "deployment": planned["deployment_id"],
        "replicas": replicas,
        "kv_capacity_tokens": replica.kv_capacity_tokens * replicas,
        "headroom_ratio": planned["headroom_ratio"],
        "step_time_provenance": replica.step.provenance,
        **comparison,
    }


def _planned(plan: Path, deployment: str | None) -> dict[str, Any]:
    """Row of plan_replicas of today's fleet of one deployment in the folder (or file) `plan`."""
    path = plan / PLANNED if plan.is_dir() else plan
    if not path.is_file() or path.name != PLANNED:
        raise ConfigError(f"--against {plan}: holds no {PLANNED}; name a folder such as HOME/plans/week=2026-W47")
    rows = pl.read_parquet(path).filter((pl.col("scenario_id") == "today") & pl.col("is_binding"))
    names = rows["deployment_id"].to_list()
    if deployment is None and len(names) != 1:
        raise ConfigError(
            f"--against {plan}: has {len(names)} deployments; name one with --deployment ({', '.join(names)})"
        )
    chosen = names[0] if deployment is None else deployment
    if chosen not in names:
        raise ConfigError(f"--deployment {chosen}: not in {plan}{nearest(chosen, names)} (it has {', '.join(names)})")
    return rows.filter(pl.col("deployment_id") == chosen).row(0, named=True)


def against_lines(found: dict[str, Any]) -> list[str]:
    """Lines on a comparison: what was compared, each figure, and the factor that the gap implies."""
    where = f"{found['deployment']} of {found['week']} on {found['replicas']} replica{'s' * (found['replicas'] > 1)}"
    counts = f"{found['compared_requests']:,} requests measured and replayed"
    lines = [f"{where}: {counts}, step times {found['step_time_provenance']}"]
    lines.append(f"{'':20}{'predicted':>12}{'measured':>12}{'factor':>9}")
    for row in found["figures"]:
        factor = row["measured_to_predicted_factor"]
        shown = "-" if factor is None else f"{factor:.2f}"
        lines.append(f"{row['measure']:20}{row['predicted']:12.4g}{row['measured']:12.4g}{shown:>9}")
    used = [100 * row[side] / found["kv_capacity_tokens"] for row in found["figures"]
            if row["measure"] == "kv_mean_tokens" for side in ("predicted", "measured")]  # fmt: skip
    lines.append(f"{'KV in use, mean %':20}{used[0]:12.3g}{used[1]:12.3g}")
    factor, headroom = found["safety_factor"], 1 + found["headroom_ratio"]
    enough = "the plan's headroom covers it" if factor <= headroom else "more than the plan's headroom"
    lines.append(f"safety factor {factor:.2f}: {enough} ({headroom:.2f}); TTFT is shown, not counted")
    return lines
