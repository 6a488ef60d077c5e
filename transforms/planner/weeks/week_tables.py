"""The tables of a plan that look at more than one week: what changed, and where it leads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from transforms.planner.sizing.demand import SloPeaks
from transforms.planner.sizing.gpus import gpus_of, whole_replicas
from transforms.planner.sizing.plan_tables import TODAY, plan_rows
from transforms.planner.weeks.growth import Outlook, forecast_rows, growth_of
from transforms.planner.weeks.ttft_causes import ttft_rows
from transforms.planner.weeks.week_changes import change_rows
from transforms.planner.weeks.week_taken import taken_week

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.planner.sizing.plan_replicas import Site
    from transforms.planner.weeks.week_taken import TakenWeek
    from transforms.workload import Workload

Plan = dict[str, pl.DataFrame]


@dataclass(frozen=True, eq=False)
class Weeks:
    """What is known of the weeks before the one planned."""

    earlier: TakenWeek | None
    """Of the week right before; None where it has no rows."""
    work_per_s: Mapping[str, float]
    """Tokens per covered second of the weeks so far, the planned one included, where at least half is covered."""
    horizon_weeks: int
    lead_time_days: int


def with_weeks(plan: Plan, later: Workload, site: Site, weeks: Weeks, run_id: str) -> Plan:
    """`plan` of one deployment with its tables of more than one week filled, and its GPUs at the horizon."""
    keys = {"run_id": run_id, "week": later.week, "deployment_id": later.deployment_id, "scenario_id": TODAY}
    changes, causes = [], []
    if weeks.earlier is not None:
        taken = taken_week(later, site.replica, _peaks(plan, site))
        changes, causes = change_rows(weeks.earlier, taken, site), ttft_rows(weeks.earlier, taken, site)
    forecasts = forecast_rows(growth_of(weeks.work_per_s), _outlook(plan, later.week, site, weeks))
    return {
        **plan,
        "plan_replicas": plan["plan_replicas"].with_columns(
            pl.lit(_horizon_gpus(forecasts[-1]["value_gpus"], site) if forecasts else None, pl.Int64).alias(
                "horizon_gpus"
            )
        ),
        "plan_changes": plan_rows("plan_changes", keys, changes),
        "plan_ttft_causes": plan_rows("plan_ttft_causes", keys, causes),
        "plan_forecasts": plan_rows(
            "plan_forecasts", keys, [{**forecast, "covered_s": site.covered_s} for forecast in forecasts]
        ),
    }


def _peaks(plan: Plan, site: Site) -> SloPeaks | None:
    """Peaks of the week that `plan` was sized by; None where nothing was."""
    kv_bytes, busy_gpus = plan["plan_replicas"].select("residency_peak_bytes", "compute_gpu_s_per_s").row(0)
    return None if kv_bytes is None or busy_gpus is None else SloPeaks(kv_bytes, busy_gpus / site.replica.gpus)


def _outlook(plan: Plan, week: str, site: Site, weeks: Weeks) -> Outlook:
    """The binding demand of the plan in GPUs, as the start of the forecast."""
    bound = plan["plan_replicas"].filter("is_binding")
    demand = bound["demand_replicas"].item()
    return Outlook(
        week=week,
        demand_gpus=0.0 if demand is None or not math.isfinite(demand) else demand * site.terms.gpus_per_replica,
        now_gpus=gpus_of(site.now_replicas, site.terms),
        horizon_weeks=weeks.horizon_weeks,
        lead_time_days=weeks.lead_time_days,
        provenance=bound["provenance"].item(),
    )


def _horizon_gpus(demand_gpus: float, site: Site) -> int:
    replicas = whole_replicas(demand_gpus / site.terms.gpus_per_replica) + site.terms.spare_replicas
    return gpus_of(replicas, site.terms)
