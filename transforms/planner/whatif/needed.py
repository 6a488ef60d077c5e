"""GPUs that the traffic of a scenario needs: the three demands of the plan, the largest one, spare replicas, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.planner.residency.timeline import accepted
from transforms.planner.residency.traffic import windows_of
from transforms.planner.sizing.demand import compute_demand, kv_demand, latency_demand, slo_peaks
from transforms.planner.sizing.gpus import NO_DEMAND, binding, fleet_for, gpus_of
from transforms.planner.sizing.latency_by_replay import latency_by_replay

if TYPE_CHECKING:
    from transforms.planner.sizing.plan_replicas import Site
    from transforms.workload import Workload


REPLAYED, CLOSED_FORMS = "replay", "closed forms"


def needed_fleet(workload: Workload, site: Site, *, is_replayed: bool) -> dict[str, Any]:
    """Columns of plan_scenarios on the fleet that `workload` needs at the objectives of `site`.

    `is_replayed`: the latency demand comes from replays of the busiest windows, as in a plan; else from closed forms.
    """
    replica = site.replica
    if not (accepted(workload, replica) & ~workload.is_carried).any():
        return _fleet(site, NO_DEMAND, gpus_of(site.now_replicas, site.terms))
    peaks = slo_peaks(workload, replica)
    latency = latency_demand(windows_of(workload, replica), replica)
    if is_replayed:
        latency = latency_by_replay(workload, replica, latency, site.now_replicas, site.seed)
    demands: dict[str, float | None] = {
        "kv": float(kv_demand(peaks.kv_bytes, replica, site.headroom_ratio)),
        "compute": float(compute_demand(peaks.work, site.headroom_ratio)),
        "latency": None if latency.replicas is None else float(latency.replicas),
    }
    count = fleet_for([value for value in demands.values() if value is not None], site.terms)
    return {
        **_fleet(site, binding(demands), count.gpus),
        "needed_replicas": count.replicas,
        "residency_peak_bytes": peaks.kv_bytes,
        "is_slo_reachable": latency.replicas is not None,
        "slo_floor_text": latency.floor_text(replica),
        "latency_demand_by": CLOSED_FORMS if latency.replay is None else REPLAYED,
    }


def _fleet(site: Site, bound: str, gpus: int) -> dict[str, Any]:
    price = None if site.price is None else site.price.usd_per_hour
    now_gpus = gpus_of(site.now_replicas, site.terms)
    return {
        "binding_demand": bound,
        "needed_gpus": gpus,
        "fleet_gpus": now_gpus,
        "cost_usd_per_hour": None if price is None else gpus * price,
        "fleet_cost_usd_per_hour": None if price is None else now_gpus * price,
    }
