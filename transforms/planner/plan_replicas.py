"""The rows of plan_replicas: each demand in replicas, the GPUs the largest one takes, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.demand import compute_demand, kv_demand
from transforms.planner.envelope import difference, envelope
from transforms.planner.interval import day_interval
from transforms.planner.provenance import MODELLED, weakest
from transforms.planner.residency import HOUR_S
from transforms.planner.sizing import DEMANDS, binding, fleet_for, gpus_of, is_one_lost_ok, whole_replicas
from transforms.workload import week_start

if TYPE_CHECKING:
    from datetime import datetime

    from transforms.planner.demands_of_week import WeekDemands
    from transforms.planner.replica import Replica
    from transforms.planner.sizing import Count, Terms
    from transforms.workload import Workload


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
    terms: Terms
    headroom_ratio: float
    price: Price | None
    memory_provenance: str
    covered_s: float
    """Seconds of the week the logs cover: what a week's output is paid over."""
    seed: int


def replica_rows(workload: Workload, found: WeekDemands, site: Site) -> list[dict[str, Any]]:
    """Three rows of plan_replicas, one a demand; what concerns the deployment as a whole stands in each."""
    demands = in_replicas(found, site.replica, site.headroom_ratio)
    bare = in_replicas(found, site.replica, 0.0)
    carried = [value for value in demands.values() if value is not None]
    bound, needed = binding(demands), fleet_for(carried, site.terms)
    whole = {
        **_fleet(found, site, needed),
        **_memory(found, site),
        **_envelope(found, site, needed, bound),
        **_cost(workload, site, needed),
        "is_one_lost_ok": is_one_lost_ok([value for value in bare.values() if value is not None], site.now_replicas),
        "provenance": weakest(MODELLED, site.replica.step.provenance, site.memory_provenance),
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
            "note": notes[name] or None,
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


def _fleet(found: WeekDemands, site: Site, needed: Count) -> dict[str, Any]:
    by_day = np.stack(
        [
            kv_demand(found.kv.by_day, site.replica, site.headroom_ratio),
            compute_demand(found.compute.by_day, site.headroom_ratio),
            found.latency.by_day,
        ]
    )
    interval = day_interval(by_day, lambda peaks: fleet_for(list(peaks), site.terms).gpus, site.seed)
    low, high = interval or (None, None)
    return {
        "needed_replicas": needed.replicas,
        "needed_gpus": needed.gpus,
        "low_gpus": None if low is None else min(low, needed.gpus),
        "high_gpus": None if high is None else max(high, needed.gpus),
        "now_replicas": site.now_replicas,
        "now_gpus": gpus_of(site.now_replicas, site.terms),
        "headroom_ratio": site.headroom_ratio,
    }


def _memory(found: WeekDemands, site: Site) -> dict[str, Any]:
    return {
        "residency_peak_bytes": found.kv.value,
        "residency_peak_observed_bytes": found.kv_observed.value,
        "residency_max_bytes": found.kv_instant_bytes,
        "kv_capacity_bytes": site.replica.kv_capacity_bytes,
        "is_censored": found.is_censored,
        "planned_batch_requests": found.batch.batch_requests if found.batch else None,
        "step_s": found.batch.step_s if found.batch else None,
        "compute_gpu_s_per_s": found.compute.value * site.replica.gpus,
    }


def _envelope(found: WeekDemands, site: Site, needed: Count, bound: str) -> dict[str, Any]:
    made = envelope(found.slo, site.replica, site.headroom_ratio)
    if made is None:
        return {"envelope_gpus": None, "envelope_reason": "no traffic this week: nothing to multiply"}
    carrying = _whole(in_replicas(found, site.replica, site.headroom_ratio)[bound]) or 0
    return {
        "envelope_gpus": gpus_of(made.instances, site.terms),
        "envelope_reason": difference(made, needed.replicas, bound, carrying),
    }


def _cost(workload: Workload, site: Site, needed: Count) -> dict[str, Any]:
    if site.price is None:
        return {}
    price = site.price.usd_per_hour
    usd = needed.gpus * price * site.covered_s / HOUR_S
    tokens = float(workload.output_tokens[~workload.is_carried].sum())
    return {
        "cost_usd_per_hour": needed.gpus * price,
        "now_cost_usd_per_hour": gpus_of(site.now_replicas, site.terms) * price,
        "output_cost_usd_per_million_tokens": usd / (tokens / 1e6) if tokens else None,
        "session_cost_usd": usd / workload.sessions if workload.sessions else None,
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
    """What a reader must know of each demand, in one line; empty where there is nothing."""
    unknown, replica = workload.unknown, site.replica
    counted = (
        (unknown.prompt_requests, "attempts of unknown prompt length left out"),
        (unknown.output_requests, "answered attempts of unknown output length left out"),
        (unknown.failed_output_requests, "failed attempts of unknown output hold their prompt only"),
        (unknown.tool_waits, "tool waits of unknown length left out"),
        (found.refused_requests, f"prompts of max_model_len = {replica.max_model_len_tokens} or more left out"),
    )
    kv = [f"{count:,} {text}" for count, text in counted if count]
    if not workload.attempts_requests:
        kv.append("no traffic this week: one replica is kept so that the service answers")
    compute = "" if found.pace.is_tpot_met else "a full KV pool cannot be read within tpot_p95_s: batches stay below it"
    return {"kv": "; ".join(kv), "compute": compute, "latency": found.latency.note}


def _whole(demand: float | None) -> int | None:
    return None if demand is None else whole_replicas(demand)


def _over(demand: float | None, replicas: int) -> float | None:
    return None if demand is None else demand / replicas
