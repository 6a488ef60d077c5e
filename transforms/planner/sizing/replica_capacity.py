"""What one replica takes, in two numbers that never mix: requests that may reside, and the open-loop rate it keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.errors import InputError
from transforms.planner.replay.engine import replay
from transforms.planner.replay.rate_scaling import scaled_if_any
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.sustainable_rate import ATTAINED_RATIO, kept_both, sustainable_rate
from transforms.planner.residency.sweep import MICROS
from transforms.planner.sizing.rate_curve import at_factor

if TYPE_CHECKING:
    import polars as pl

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult
    from transforms.planner.residency.timeline import AnyTimeline
    from transforms.planner.sizing.latency_by_replay import LatencyReplay
    from transforms.planner.sizing.replica import Replica

BURST_FACTOR = 2.0
LARGEST_FACTOR = 32.0
"""Times the traffic up to which the first miss of a fleet is looked for."""
CLOSE_RATIO = 0.05
OVERSUBSCRIBED = (1.0, 1.25, 1.5, 2.0)
"""Times the recommended batch at which a burst is replayed, beside today's max_num_seqs and twice that."""


def resident_requests(timeline: AnyTimeline, replica: Replica) -> int | None:
    """Whole requests of the observed lengths that a replica's KV holds at SLO pace; no scheduling limit enters."""
    span_s = held_token_s = 0.0
    for part in timeline.parts():
        prefill_s = (part.first_us - part.prefill_us) / MICROS
        decode_s = (part.end_us - part.first_us) / MICROS
        span_s += float((prefill_s + decode_s).sum())
        held = (part.cached_tokens + part.prompt_tokens) / 2 * prefill_s
        held_token_s += float((held + (part.prompt_tokens + part.output_tokens / 2) * decode_s).sum())
    mean_tokens = held_token_s / span_s if span_s > 0 else 0.0
    return replica.ranks * int(replica.rank_capacity_tokens / mean_tokens) if mean_tokens > 0 else None


def sustained(found: LatencyReplay, count: int, seed: int) -> dict[str, float | None]:
    """Columns of plan_replicas: rate one replica sustains on its share of the hardest hour, as an interval.

    `count` is the number of replicas that share that hour; NULL where its sessions cannot be shared out so, or where
    the objectives are missed down to the last of them.
    """
    share, week = _share(found, count, 1.0, seed), found.replays.week
    if share is None or share.span_s <= 0:
        return {}
    promised = ReplayOptions(ttft_p95_s=week.replica.ttft_p95_s, tpot_p95_s=week.replica.tpot_p95_s, seed=seed)
    try:
        rate = sustainable_rate(share, week.settings.on_replicas(1), week.costs, promised)
    except InputError:
        return {}
    ends = ("low_requests_per_s", "high_requests_per_s")
    return {f"sustained_{end}": rate[end] for end in ends}


def first_missed_factor(found: LatencyReplay, replicas: int, seed: int) -> float | None:
    """Times the hardest hour's traffic at which `replicas` replicas first miss the objectives; None beyond 32."""

    def is_kept(factor: float) -> bool:
        point = at_factor(found, replicas, factor, seed)
        return point is None or point[1] >= ATTAINED_RATIO

    low, high = 0.0, 1.0
    while is_kept(high):
        low, high = high, 2 * high
        if high > LARGEST_FACTOR:
            return None
    while high - low > CLOSE_RATIO * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return high


def oversubscribed(curve: pl.DataFrame, found: LatencyReplay, count: int, seed: int) -> dict[int, dict[str, Any]]:
    """Batch → columns of plan_batch_curve under a burst of twice a replica's share of the hardest hour.

    Each at max_num_seqs = that batch: from the recommended batch (else 1) to twice today's.
    """
    share = _share(found, count, BURST_FACTOR, seed)
    if share is None:
        return {}
    batches = curve["batch_requests"]
    recommended = [*curve.filter("is_recommended")["batch_requests"].to_list(), 1][0]
    wanted = [recommended * factor for factor in OVERSUBSCRIBED]
    wanted += [*curve.filter("is_today")["batch_requests"].to_list(), batches.max()]
    chosen = {int(batches[int(np.abs(batches.to_numpy() - want).argmin())]) for want in wanted}
    return {batch: _burst(share, found, batch) for batch in sorted(chosen)}


def _burst(share: ReplayTrace, found: LatencyReplay, batch: int) -> dict[str, Any]:
    settings = found.replays.week.settings.on_replicas(1)
    budget = max(settings.max_num_batched_tokens, batch)
    settings = replace(settings, max_num_seqs=batch, max_num_batched_tokens=budget)
    result = replay(share.columns, settings, found.replays.week.costs)
    return {
        "burst_miss_ratio": 1 - _attained(result, found),
        "burst_preempted_requests": int((result.preemptions > 0).sum()),
    }


def _attained(result: ReplayResult, found: LatencyReplay) -> float:
    replica = found.replays.week.replica
    return float(kept_both(result, replica.ttft_p95_s, replica.tpot_p95_s).mean())


def _share(found: LatencyReplay, count: int, factor: float, seed: int) -> ReplayTrace | None:
    """`factor` times one of `count` replicas' share of the hardest stretch, whole sessions; None where none is left."""
    part, _rows = found.hardest
    if len(np.unique(part.unit)) * factor < count:
        return None
    return scaled_if_any(part, factor / count, seed)
