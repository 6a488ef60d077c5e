"""Closed-loop figures of a trace's lengths: so many requests always in flight. They throttle themselves.

Beside them stands the open loop, in which users do not wait for the fleet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_summary import quantiles_of
from transforms.planner.replay.replay_types import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import Settings
    from transforms.planner.replay.step_costs import StepCosts


def closed_curve(
    trace: ReplayTrace, settings: Settings, costs: StepCosts, concurrency: Sequence[int]
) -> list[dict[str, Any]]:
    """A row for each number of requests in flight: rates, TTFT and TPOT. Sessions and arrivals are not followed."""
    none = np.zeros(0, dtype=np.int32)
    columns = replace(trace.columns, parent=none, delay_s=np.zeros(0), from_start=np.zeros(0, dtype=np.bool_))
    rows = []
    for requests in concurrency:
        result = replay(columns, replace(settings, closed_loop_requests=requests), costs)
        is_completed = result.status == Status.COMPLETED
        span_s = result.makespan_s if result.makespan_s > 0 else np.nan
        found = quantiles_of(result, is_completed)
        rows.append(
            {
                "concurrency_requests": requests,
                "requests_per_s": float(is_completed.sum()) / span_s,
                "output_tokens_per_s": float(result.output_tokens.sum(dtype=np.int64)) / span_s,
                "ttft_s": found["ttft_s"],
                "tpot_s": found["tpot_s"],
            }
        )
    return rows
