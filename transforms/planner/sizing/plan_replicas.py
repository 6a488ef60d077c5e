"""The rows of plan_replicas: each demand in replicas, the GPUs the largest one takes, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from transforms.planner.provenance import MODELLED, weakest
from transforms.planner.residency.occupancy import HOUR_S
from transforms.planner.sizing.demand import compute_demand, kv_demand
from transforms.planner.sizing.envelope import difference, envelope
from transforms.planner.sizing.gpus import (
    DEMANDS,
    NO_DEMAND,
    binding,
    fleet_for,
    gpus_of,
    is_one_lost_ok,
    whole_replicas,
)
from transforms.planner.sizing.interval import DayDemands, day_interval
from transforms.planner.sizing.plan_notes import plan_notes
from transforms.planner.sizing.replica_capacity import first_missed_factor, resident_requests, sustained
from transforms.workload import week_start

if TYPE_CHECKING:
    from datetime import datetime

    from transforms.planner.sizing.demands_of_week import WeekDemands
    from transforms.planner.sizing.gpus import Count, Terms
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

LEAST_COVERED_S = 86_400
LEAST_OUTPUT_TOKENS = 1_000_000
LEAST_SESSIONS = 100
"""Below these a price per unit of traffic says how little was looked at, not what the unit costs."""


@dataclass(frozen=True)
class Price:
    """What one GPU-hour costs, and where that is from."""

    usd_per_hour: float
    provenance: str
    source: str


@dataclass(frozen=True)
class Site:
    """One deployment as it stands: its replica, how many there are, how GPUs are had, and what they cost."""

    replica: Replica
    now_replicas: int
    """0 where nothing runs today."""
    terms: Terms
    headroom_ratio: float
    price: Price | None
    memory_provenance: str
    covered_s: float
    """Seconds of the week the logs cover: what a week's output is paid over."""
    seed: int
    step_error_ratio: float = 0.0
    """Median error of the step times: of the calibration, on what it was not fitted to."""
    assumed_slo: tuple[tuple[str, float], ...] = ()
    """Objectives that the fleet file does not name, with the value taken."""
    assumed_engine: tuple[tuple[str, float], ...] = ()
    """Engine settings that the fleet file does not name, with the engine's default."""


def replica_rows(workload: Workload, found: WeekDemands, site: Site) -> list[dict[str, Any]]:
    """Three rows of plan_replicas, one a demand; what concerns the deployment as a whole stands in each.

    Without usable traffic it is one row of the demand `none`: the replicas of today are kept.
    """
    if not found.usable_requests:
        return [_unsized(workload, found, site)]
    demands = in_replicas(found, site.replica, site.headroom_ratio)
    bare = in_replicas(found, site.replica, 0.0)
    bound, needed = binding(demands), fleet_for(_known(demands), site.terms)
    whole = {
        **_fleet(found, site, needed),
        **_objective(found, site, bare),
        **_memory(found, site),
        **_capacity(found, site, needed),
        **_envelope(found, site, needed, bound),
        **_cost(workload, site, needed.gpus),
    }
    notes, busiest = _notes(workload, found, site), _busiest(workload, found)
    return [
        {
            **whole,
            "demand": name,
            "demand_replicas": demands[name],
            "replicas_replicas": _whole(demands[name]),
            "is_binding": name == bound,
            "utilization_factor": _over(bare[name], site.now_replicas),
            "busiest_hour_at": busiest[name],
            "note": notes.get(name),
        }
        for name in DEMANDS
    ]


def in_replicas(found: WeekDemands, replica: Replica, headroom_ratio: float) -> dict[str, float | None]:
    """Each demand in replicas, not rounded; latency None where no number of replicas keeps the objectives."""
    latency = found.latency.replicas
    return {
        "kv": float(kv_demand(found.kv.value, replica, headroom_ratio)),
        "compute": float(compute_demand(found.compute.value, headroom_ratio)),
        "latency": None if latency is None else float(latency),
    }


def _unsized(workload: Workload, found: WeekDemands, site: Site) -> dict[str, Any]:
    """The one row of a deployment that nothing can be sized by: needed is what runs today."""
    gpus = gpus_of(site.now_replicas, site.terms)
    return {
        **_now(site),
        **_cost(workload, site, gpus),
        "demand": NO_DEMAND,
        "is_binding": True,
        "needed_replicas": site.now_replicas,
        "needed_gpus": gpus,
        "kv_capacity_bytes": site.replica.kv_capacity_bytes,
        "is_censored": False,
        "envelope_reason": "no usable traffic this week: nothing to multiply",
        "note": "; ".join(note.text for note in plan_notes(workload, found, site)),
    }


def _now(site: Site) -> dict[str, Any]:
    return {
        "now_replicas": site.now_replicas,
        "now_gpus": gpus_of(site.now_replicas, site.terms),
        "headroom_ratio": site.headroom_ratio,
        "provenance": weakest(MODELLED, site.replica.step.provenance, site.memory_provenance),
    }


def _fleet(found: WeekDemands, site: Site, needed: Count) -> dict[str, Any]:
    low, high = _interval(found, site) or (None, None)
    return {
        **_now(site),
        "needed_replicas": needed.replicas,
        "needed_gpus": needed.gpus,
        "low_gpus": None if low is None else min(low, needed.gpus),
        "high_gpus": None if high is None else max(high, needed.gpus),
    }


def _interval(found: WeekDemands, site: Site) -> tuple[int, int] | None:
    """GPUs at 5 % and 95 %; None where a demand is not known, for a count that leaves one out is none to be sure of."""
    if found.latency.replicas is None:
        return None
    days = DayDemands(
        kv=kv_demand(found.kv.by_day, site.replica, site.headroom_ratio),
        compute=compute_demand(found.compute.by_day, site.headroom_ratio),
        latency=lambda day, factor: found.latency.replicas_of_day(day, factor, site.replica),
        tails=found.kv_tails,
        step_error_ratio=site.step_error_ratio,
        kv_pace_factor=found.pace.slack_factor,
    )
    return day_interval(days, lambda demands: fleet_for(demands, site.terms).gpus, site.seed)


def _objective(found: WeekDemands, site: Site, bare: dict[str, float | None]) -> dict[str, Any]:
    """Whether the latency objective can be met at all, and which demands the count rests on."""
    is_reachable = found.latency.replicas is not None
    return {
        "is_slo_reachable": is_reachable,
        "slo_floor_text": found.latency.floor_text(site.replica),
        "rests_on_text": "KV, compute and latency" if is_reachable else "KV and compute only",
        "is_one_lost_ok": is_reachable and is_one_lost_ok(_known(bare), site.now_replicas),
    }


def _memory(found: WeekDemands, site: Site) -> dict[str, Any]:
    return {
        "residency_peak_bytes": found.kv.value,
        "residency_peak_observed_bytes": found.kv_observed.value,
        "residency_max_bytes": found.kv_instant_bytes,
        "kv_capacity_bytes": site.replica.kv_capacity_bytes,
        "is_censored": found.is_censored,
        "planned_batch_requests": site.replica.ranks * found.batch.batch_requests if found.batch else None,
        "step_s": found.batch.step_s if found.batch else None,
        "compute_gpu_s_per_s": found.compute.value * site.replica.gpus,
    }


def _capacity(found: WeekDemands, site: Site, needed: Count) -> dict[str, Any]:
    """Two numbers of one replica, and how much more traffic the needed fleet takes; NULL where nothing was replayed."""
    whole: dict[str, Any] = {"resident_requests": resident_requests(found.slo, site.replica)}
    latency = found.latency
    if latency.replay is None or latency.replicas is None:
        return whole
    factor = first_missed_factor(latency.replay, needed.replicas, site.seed)
    return {**whole, **sustained(latency.replay, latency.replicas, site.seed), "slo_missed_factor": factor}


def _envelope(found: WeekDemands, site: Site, needed: Count, bound: str) -> dict[str, Any]:
    made = envelope(found.slo, site.replica, site.headroom_ratio)
    if made is None:
        return {"envelope_gpus": None, "envelope_reason": "no traffic this week: nothing to multiply"}
    carrying = _whole(in_replicas(found, site.replica, site.headroom_ratio)[bound]) or 0
    return {
        "envelope_gpus": gpus_of(made.instances, site.terms),
        "envelope_reason": difference(made, needed.replicas, bound, carrying),
    }


def _cost(workload: Workload, site: Site, gpus: int) -> dict[str, Any]:
    """Cost of `gpus`; what an output token and a session cost only where enough of both was seen."""
    if site.price is None:
        return {}
    price = site.price.usd_per_hour
    usd = gpus * price * site.covered_s / HOUR_S
    tokens = float(workload.kept.columns["output_tokens"][~workload.is_carried].sum())
    is_covered = site.covered_s >= LEAST_COVERED_S
    has_output, has_sessions = tokens >= LEAST_OUTPUT_TOKENS, workload.sessions >= LEAST_SESSIONS
    return {
        "cost_usd_per_hour": gpus * price,
        "now_cost_usd_per_hour": gpus_of(site.now_replicas, site.terms) * price,
        "output_cost_usd_per_million_tokens": usd / (tokens / 1e6) if is_covered and has_output else None,
        "session_cost_usd": usd / workload.sessions if is_covered and has_sessions else None,
    }


def _busiest(workload: Workload, found: WeekDemands) -> dict[str, datetime | None]:
    """Hour (or window) in which each demand peaks; None without traffic."""
    start = week_start(workload.week)
    window = found.latency.window
    return {
        "kv": start + timedelta(hours=found.kv.hour) if found.kv.value else None,
        "compute": start + timedelta(hours=found.compute.hour) if found.compute.value else None,
        "latency": start + timedelta(seconds=window.start_s) if window else None,
    }


def _notes(workload: Workload, found: WeekDemands, site: Site) -> dict[str, str]:
    """What a reader must know of each demand, in one line; without those where there is nothing."""
    notes = plan_notes(workload, found, site)
    demands = dict.fromkeys(note.demand for note in notes)
    return {name: "; ".join(note.text for note in notes if note.demand == name) for name in demands}


def _known(demands: dict[str, float | None]) -> list[float]:
    return [value for value in demands.values() if value is not None]


def _whole(demand: float | None) -> int | None:
    return None if demand is None else whole_replicas(demand)


def _over(demand: float | None, replicas: int) -> float | None:
    return None if demand is None or not replicas else demand / replicas
