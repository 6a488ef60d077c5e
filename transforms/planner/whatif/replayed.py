"""What a replay of a scenario comes to: who was served how fast, who was not, what the KV cache held, what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.replay_summary import kv_time_byte_s, quantiles_of
from transforms.planner.replay.replay_types import REJECTED, Status
from transforms.planner.replay.sustainable_rate import kept_both
from transforms.planner.replay.verdict import verdict_of

if TYPE_CHECKING:
    from transforms.planner.replay.replay_options import ReplayOptions
    from transforms.planner.replay.replay_settings import KvPool
    from transforms.planner.replay.replay_types import ReplayResult, Settings, TraceColumns

MEASURES = ("ttft_s", "tpot_s", "e2e_s")
SHOWN = ("p50", "p95", "p99")


def replay_figures(  # noqa: PLR0917 - a replay and what it was asked
    result: ReplayResult,
    columns: TraceColumns,
    pool: KvPool,
    options: ReplayOptions,
    refused_requests: int,
    gpus: int,
) -> dict[str, Any]:
    """Columns of plan_scenarios that a replay answers; `refused_requests` never reached it and count as misses.

    `gpus` are those of a replica: GPU·s are paid for all replicas there are from the first arrival to the last end.
    """
    is_completed = result.status == Status.COMPLETED
    found = quantiles_of(result, is_completed)
    kv_byte_s = float(np.nansum(kv_time_byte_s(result, pool)))
    asked = int((result.status != Status.NOT_SENT).sum()) + refused_requests
    missed = missed_requests(result, options, refused_requests)
    return {
        "verdict": verdict_of(result, columns.parent).word,
        "completed_requests": int(is_completed.sum()),
        "queue_refused_requests": int(np.isin(result.status, REJECTED).sum()),
        "timed_out_requests": int((result.status == Status.TIMED_OUT).sum()),
        "unsent_requests": int((result.status == Status.NOT_SENT).sum()),
        "preempted_requests": int((result.preemptions > 0).sum()),
        "kv_time_byte_s": kv_byte_s,
        "residency_mean_bytes": kv_byte_s / result.makespan_s if result.makespan_s > 0 else None,
        "kv_peak_ratio": result.peak_units / pool.pool.units,
        **{f"{name.removesuffix('_s')}_{quantile}_s": found[name][quantile] for name in MEASURES for quantile in SHOWN},
        "attainment_ratio": 1 - missed / asked if asked else None,
        "missed_requests": missed,
        "paid_gpu_s": result.paid_replica_s * gpus,
    }


def missed_requests(result: ReplayResult, options: ReplayOptions, refused_requests: int) -> int:
    """Requests that arrive and are not answered within both objectives; turns that are never sent do not arrive."""
    is_sent = result.status != Status.NOT_SENT
    kept = int(kept_both(result, options.ttft_p95_s, options.tpot_p95_s).sum())
    return int(is_sent.sum()) + refused_requests - kept


def fixed_fleet(settings: Settings, now_replicas: int) -> Settings | None:
    """What an autoscaler of `settings` is held against: today's replicas, everything else alike; None without one.

    Where nothing runs today, the replicas that it begins with.
    """
    if settings.autoscaling is None:
        return None
    fixed = replace(settings, autoscaling=None)
    return fixed.on_replicas(now_replicas) if now_replicas else fixed


def fixed_fleet_figures(
    result: ReplayResult, settings: Settings, options: ReplayOptions, refused_requests: int, gpus: int
) -> dict[str, Any]:
    """Columns of plan_scenarios on the fixed fleet of `settings`: GPU·s of all its replicas, requests it misses."""
    return {
        "fixed_fleet_replicas": settings.replicas // settings.ranks,
        "fixed_fleet_gpu_s": result.paid_replica_s * gpus,
        "fixed_fleet_missed_requests": missed_requests(result, options, refused_requests),
    }
