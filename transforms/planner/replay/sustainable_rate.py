"""The open-loop rate a deployment sustains under its objectives, as an interval: near saturation chance decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.rate_scaling import scaled
from transforms.planner.replay.replay_summary import latencies
from transforms.planner.replay.replay_types import Status
from transforms.planner.replay.verdict import OVERLOADED, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from transforms.planner.replay.replay_options import ReplayOptions
    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult, Settings
    from transforms.planner.replay.step_costs import StepCosts

SEEDS = 3
ATTAINED_RATIO = 0.95
"""The objectives are 95 % quantiles."""
CLOSE_RATIO = 0.03
"""The search ends when its ends are so close."""
SMALLEST, LARGEST = 1 / 64, 64.0
"""Times today's rate: what scaling a trace can answer for."""


def sustainable_rate(
    trace: ReplayTrace, settings: Settings, costs: StepCosts, options: ReplayOptions
) -> dict[str, Any]:
    """Rates between which the fleet stops keeping ttft_p95_s and tpot_p95_s for 95 % of the requests sent.

    `low`: kept with every seed of the scaling; `high`: with none, None where 64 times the trace is still kept.
    """
    outcomes: dict[float, list[bool]] = {}

    def kept(factor: float) -> list[bool]:
        if factor not in outcomes:
            outcomes[factor] = [
                _is_kept(trace, settings, costs, replace(options, rate_scale=factor, seed=options.seed + seed))
                for seed in range(SEEDS)
            ]
        return outcomes[factor]

    low = _edge(lambda factor: all(kept(factor)))
    high = _edge(lambda factor: any(kept(factor)), beyond=True)
    rate = trace.columns.rows / trace.span_s if trace.span_s > 0 else float("nan")
    return {
        "low_requests_per_s": None if low is None else low * rate,
        "high_requests_per_s": None if high is None else high * rate,
        "low_scale_factor": low,
        "high_scale_factor": high,
        "ttft_p95_s": options.ttft_p95_s,
        "tpot_p95_s": options.tpot_p95_s,
        "seeds": SEEDS,
        "replays": SEEDS * len(outcomes),
    }


def _edge(is_fine: Callable[[float], bool], *, beyond: bool = False) -> float | None:
    """Largest factor found fine (`beyond`: smallest found not fine) in a search that halves its interval."""
    low, high = 0.0, 1.0
    while high <= LARGEST and is_fine(high):
        low, high = high, 2 * high
    if high > LARGEST:
        return None if beyond else low
    while high - low > CLOSE_RATIO * high:
        middle = (low + high) / 2
        if high <= SMALLEST:
            return high if beyond else None
        low, high = (middle, high) if is_fine(middle) else (low, middle)
    return high if beyond else low


def _is_kept(trace: ReplayTrace, settings: Settings, costs: StepCosts, options: ReplayOptions) -> bool:
    again = scaled(trace, options.rate_scale, options.scale_mode, options.seed)
    result = replay(again.columns, settings, costs)
    return verdict_of(result, again.columns.parent).word != OVERLOADED and attained(result, options) >= ATTAINED_RATIO


def attained(result: ReplayResult, options: ReplayOptions) -> float:
    """Share of the requests sent that kept both objectives; what was refused, left or failed missed them."""
    is_sent = result.status != Status.NOT_SENT
    return float(kept_both(result, options.ttft_p95_s, options.tpot_p95_s).sum() / max(is_sent.sum(), 1))


def kept_both(result: ReplayResult, ttft_p95_s: float, tpot_p95_s: float) -> NDArray[np.bool_]:
    """Whether each request was answered with its first token and its mean time per further token within these."""
    found = latencies(result)
    is_kept: NDArray[np.bool_] = (result.status == Status.COMPLETED) & (found["ttft_s"] <= ttft_p95_s)
    return is_kept & (np.isnan(found["tpot_s"]) | (found["tpot_s"] <= tpot_p95_s))
