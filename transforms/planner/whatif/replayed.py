"""What a replay of a scenario comes to: who was served how fast, who was not, and what the KV cache held."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.replay_summary import kv_time_byte_s, quantiles_of
from transforms.planner.replay.replay_types import REJECTED, Status
from transforms.planner.replay.sustainable_rate import attained
from transforms.planner.replay.verdict import verdict_of

if TYPE_CHECKING:
    from transforms.planner.replay.replay_options import ReplayOptions
    from transforms.planner.replay.replay_settings import KvPool
    from transforms.planner.replay.replay_types import ReplayResult, TraceColumns

MEASURES = ("ttft_s", "tpot_s", "e2e_s")
SHOWN = ("p50", "p95", "p99")


def replay_figures(
    result: ReplayResult, columns: TraceColumns, pool: KvPool, options: ReplayOptions, refused_requests: int
) -> dict[str, Any]:
    """Columns of plan_scenarios that a replay answers; `refused_requests` never reached it and count as misses."""
    is_completed = result.status == Status.COMPLETED
    found = quantiles_of(result, is_completed)
    kv_byte_s = float(np.nansum(kv_time_byte_s(result, pool)))
    sent = int((result.status != Status.NOT_SENT).sum())
    asked = sent + refused_requests
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
        "attainment_ratio": attained(result, options) * sent / asked if asked else None,
    }
