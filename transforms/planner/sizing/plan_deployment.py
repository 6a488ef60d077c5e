"""One deployment's plan: every plan_* table of one week from its Workload. Pure; flows/plan.py reads and writes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.planner.provenance import ASSUMED, MEASURED, MODELLED, weakest
from transforms.planner.residency.attribution import attribution_rows
from transforms.planner.residency.kv_time_table import kv_time_rows
from transforms.planner.residency.occupancy import residency_windows
from transforms.planner.residency.timeline import has_modelled
from transforms.planner.sizing.demands_of_week import demands_of_week
from transforms.planner.sizing.latency_by_replay import latency_by_replay, latency_of_fleet, quantile_function
from transforms.planner.sizing.latency_estimate import latency
from transforms.planner.sizing.plan_notes import batch_notes, plan_notes
from transforms.planner.sizing.plan_replicas import replica_rows
from transforms.planner.sizing.plan_tables import TODAY, WEEKS_TABLES, empty_plan_table, plan_frame, plan_rows
from transforms.planner.sizing.rate_curve import rate_curve
from transforms.planner.sizing.replay_week import router_of
from transforms.planner.sizing.replica_capacity import oversubscribed
from transforms.planner.steps.batch_curve import batch_curve
from transforms.planner.tool_waits.policy_rows import policy_rows
from transforms.workload import week_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transforms.planner.sizing.demands_of_week import WeekDemands
    from transforms.planner.sizing.plan_replicas import Site
    from transforms.planner.steps.step_calibration import Calibration
    from transforms.workload import Workload

QUANTILES = (0.5, 0.9, 0.95, 0.99)
REPLAYED = ("queue", "prefill", "ttft", "tpot", "e2e")


def plan_deployment(workload: Workload, site: Site, calibration: Calibration, run_id: str) -> dict[str, pl.DataFrame]:
    """Every plan table for `workload` on the fleet of `site`: name → rows in the order of its grain."""
    asked = demands_of_week(workload, site.replica, site.now_replicas)
    keys = {"run_id": run_id, "week": workload.week, "deployment_id": workload.deployment_id, "scenario_id": TODAY}
    modelled = {**keys, "provenance": weakest(MODELLED, site.replica.step.provenance)}
    # before the replays: what the two need on the way would else be in memory at once
    held = kv_time_rows(workload, asked.observed, site.replica, site.now_replicas)
    holders = attribution_rows(workload, asked.observed, site.replica)
    found = _replayed(asked, workload, site)
    replicas, curve = replica_rows(workload, found, site), _batch_curve(found, site, modelled)
    return {
        "plan_replicas": plan_rows("plan_replicas", keys, replicas),
        "plan_residency": plan_frame("plan_residency", keys, _residency(workload, found, site)),
        "plan_kv_time": plan_frame("plan_kv_time", keys, held),
        "plan_kv_attribution": plan_rows("plan_kv_attribution", keys, holders),
        "plan_latency": plan_rows("plan_latency", modelled, _latency(found, site)),
        "plan_batch_curve": curve,
        "plan_rate_curve": plan_rows("plan_rate_curve", modelled, _rate_curve(found, site, replicas)),
        "plan_assumptions": plan_rows("plan_assumptions", keys, _assumptions(found, site, calibration)),
        "plan_notes": plan_rows("plan_notes", keys, _notes(workload, found, site, curve)),
        "plan_tool_wait_policies": plan_rows("plan_tool_wait_policies", modelled, policy_rows(workload, found, site)),
        **{name: empty_plan_table(name) for name in ("plan_scenarios", *WEEKS_TABLES)},
    }


def replayed_demands(workload: Workload, site: Site) -> WeekDemands:
    """What `workload` asks of `site`, its latency demand by replay where one is possible."""
    return _replayed(demands_of_week(workload, site.replica, site.now_replicas), workload, site)


def _replayed(found: WeekDemands, workload: Workload, site: Site) -> WeekDemands:
    latency = latency_by_replay(workload, site.replica, found.latency, site.now_replicas, site.seed)
    return replace(found, latency=latency)


def _residency(workload: Workload, found: WeekDemands, site: Site) -> pl.DataFrame:
    """Rows of plan_residency between the first and the last 5 minutes in which anything resides at either pace."""
    start = week_start(workload.week)
    is_logged = not has_modelled(found.observed)
    frames = []
    for pace, residency, word in (
        ("observed", found.observed_residency, MEASURED if is_logged else MODELLED),
        ("slo", found.slo_residency, weakest(MODELLED, site.replica.step.provenance)),
    ):
        for phase, held in {**residency, "tool_wait": found.tool_waits}.items():
            named = {"pace": pace, "phase": phase, "provenance": MODELLED if phase == "tool_wait" else word}
            frames.append(
                residency_windows(held, start).with_columns(pl.lit(text).alias(name) for name, text in named.items())
            )
    windows = pl.concat(frames)
    busy = windows.filter(pl.col("resident_mean_requests") > 0)["window_started_at"]
    return windows.filter(pl.col("window_started_at").is_between(busy.min(), busy.max())).with_columns(
        pl.lit(site.now_replicas * site.replica.kv_capacity_bytes or None, pl.Int64).alias("capacity_bytes")
    )


def _notes(workload: Workload, found: WeekDemands, site: Site, curve: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of plan_notes: shares are of the week's attempts."""
    attempts = workload.attempts_requests
    return [
        {
            "code": note.code,
            "affected_requests": note.affected_requests,
            "affected_ratio": note.affected_requests / attempts if note.affected_requests and attempts else None,
            "text": note.text,
            "provenance": MEASURED,
        }
        for note in (*plan_notes(workload, found, site), *batch_notes(curve))
    ]


def _latency(found: WeekDemands, site: Site) -> list[dict[str, Any]]:
    """Latency of today's fleet in the most demanding window: replayed, else by closed forms; NULL where not answered.

    Logged latency stands in dist_latency; nothing of it is repeated here.
    """
    window = found.latency.window
    if window is None or not window.traffic.requests_per_s or not site.now_replicas:
        return []
    if found.latency.replay is not None:
        timed = latency_of_fleet(found.latency.replay, site.now_replicas)
        quantiles = {name: quantile_function(timed[f"{name}_s"]) for name in REPLAYED}
    else:
        today = latency(window.traffic, site.replica, site.now_replicas)
        quantiles = {"ttft": today.ttft_s, "queue": today.queue_s, "tpot": lambda _ratio: today.tpot_s}
    return [
        {
            "measure": measure,
            "quantile_ratio": ratio,
            "value_s": value_s if math.isfinite(value_s) else None,
            "timed_requests": window.requests,
            "source": "modelled",
        }
        for ratio in QUANTILES
        for measure, quantile in quantiles.items()
        for value_s in (quantile(ratio),)
    ]


def _batch_curve(found: WeekDemands, site: Site, keys: dict[str, str]) -> pl.DataFrame:
    if found.batch is None:
        return empty_plan_table("plan_batch_curve")
    computed = sum(float((part.prompt_tokens - part.cached_tokens).sum()) for part in found.slo.parts())
    new_tokens = computed / found.slo.rows
    curve, latency = batch_curve(site.replica, found.batch.context_tokens, new_tokens), found.latency
    burst: dict[int, dict[str, Any]] = {}
    if latency.replay is not None and latency.replicas is not None:
        burst = oversubscribed(curve, latency.replay, latency.replicas, site.seed)
    rows = [row | burst.get(row["batch_requests"], {}) for row in curve.iter_rows(named=True)]
    return plan_rows("plan_batch_curve", keys, rows)


def _rate_curve(found: WeekDemands, site: Site, replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of plan_rate_curve; none where the latency demand is not known by replay."""
    if found.latency.replay is None:
        return []
    return rate_curve(found.latency.replay, site.now_replicas, replicas[0]["needed_replicas"], site.seed)


def _assumptions(found: WeekDemands, site: Site, calibration: Calibration) -> list[dict[str, Any]]:
    """Inputs of the plan that no log gave: value, unit, how far to trust it, and where it comes from."""
    fitted, source, step, parameters = (
        calibration.provenance,
        calibration.source,
        site.replica.step,
        calibration.parameters,
    )
    full_pool = "the smaller of tpot_p95_s and a step with a full KV pool"
    apart = "median error of the time per output token on (model, GPU) groups left out of the fit"
    rows = [
        ("compute_efficiency_ratio", f"{step.flop_per_s / step.peak_flop_per_s:.3g}", "ratio", fitted, source),
        ("bandwidth_efficiency_ratio", f"{step.bytes_per_s / step.peak_bytes_per_s:.3g}", "ratio", fitted, source),
        ("step_overhead_s", f"{step.step_overhead_s:.3g}", "s", fitted, source),
        ("sequence_overhead_s", f"{step.sequence_overhead_s:.3g}", "s", fitted, source),
        ("step_time_error_ratio", f"{calibration.tpot_error_ratio:.3g}", "ratio", fitted, apart),
        ("slo_pace_s", f"{found.pace.token_s:.4g}", "s", weakest(MODELLED, fitted), full_pool),
    ]
    rows += _dispatch(found, site)
    if site.replica.gpus > 1:
        rows.append(("link_efficiency_ratio", f"{parameters.link_ratio:.3g}", "ratio", fitted, source))
    if site.price is not None:
        price = f"{site.price.usd_per_hour:g}"
        rows.append(("gpu_price_usd_per_hour", price, "USD per GPU-hour", site.price.provenance, site.price.source))
    rows += [(f"slo_{key}", f"{value:g}", "s", ASSUMED, "nobody promised it") for key, value in site.assumed_slo]
    rows += [(key, f"{value:g}", "", ASSUMED, "default of the engine") for key, value in site.assumed_engine]
    names = ("name", "value_text", "unit", "provenance", "source_text")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _dispatch(found: WeekDemands, site: Site) -> Iterator[tuple[str, str, str, str, str]]:
    """How requests get to engines and what a rank waits for, as rows of `_assumptions`: no log says either."""
    replica, node_gpus = site.replica, site.terms.gpus_per_node
    if found.latency.replay is not None:
        unseen = "the log does not say which router it came through"
        own = "vLLM's front end picks a data-parallel rank by what waits and runs there, not by what it has cached"
        yield "router", router_of(replica), "", ASSUMED, unseen if replica.ranks == 1 else own
    if replica.ranks == 1 or not replica.step.experts_per_token:
        return
    waits = "a step of experts is taken to wait for as many tokens of each other data-parallel rank"
    yield "rank_load", "equal", "", ASSUMED, waits
    if node_gpus and replica.gpus > node_gpus:
        spread = f"experts lie on {replica.gpus} GPUs, {node_gpus} to a node: tokens go to all as fast as inside one"
        yield "node_link", "as inside a node", "", ASSUMED, spread
