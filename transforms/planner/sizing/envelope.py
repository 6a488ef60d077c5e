"""The back-of-envelope count beside the plan: peak rate × response time, with the reason why the plan differs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.sizing import arithmetic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import AnyTimeline, Timeline
    from transforms.planner.sizing.replica import Replica

MINUTE_US = 60_000_000


@dataclass(frozen=True)
class Envelope:
    """What fits on the back of an envelope: rates, means and one division."""

    peak_requests_per_s: float
    """Of the busiest minute."""
    response_s: float
    """Mean, at SLO pace."""
    safety_factor: float
    resident_per_replica: float
    """Requests of mean length that fit the KV, at most max_num_seqs of each rank."""
    instances: int
    token_rate_per_s: float
    """New prompt and output tokens of the busiest minute, a second."""
    anchor_tokens_per_s: float
    """Tokens that compute allows a replica: peak × efficiency ÷ FLOP per token (2 × parameters that multiply)."""

    @property
    def working(self) -> str:
        """The calculation in one line."""
        return (
            f"{self.peak_requests_per_s:.3g} requests/s × {self.response_s:.3g} s × {self.safety_factor:g} "
            f"/ {self.resident_per_replica:.3g} a replica = {self.instances}"
        )

    @property
    def anchor(self) -> str:
        """The count by compute alone in one line, and what it does not know."""
        count = math.ceil(self.token_rate_per_s / self.anchor_tokens_per_s)
        return (
            f"by compute alone {self.token_rate_per_s:,.0f} tokens/s ÷ {self.anchor_tokens_per_s:,.0f} a replica "
            f"= {count}: it prices a decoded token like a prompt's, though decoding waits for memory"
        )


def envelope(timeline: AnyTimeline, replica: Replica, headroom_ratio: float) -> Envelope | None:
    """Back-of-envelope count for the requests of `timeline` (at SLO pace); None without requests."""
    if not timeline.rows:
        return None
    sums = np.sum([_sums(part) for part in timeline.parts()], axis=0)
    response_us, mean_tokens, new_tokens = (float(mean) for mean in sums / timeline.rows)
    peak, response_s = _busiest_minute(timeline) / 60, response_us / 1e6
    seats = replica.max_num_seqs * replica.ranks
    resident = min(float(seats), replica.kv_capacity_tokens / max(mean_tokens, 1.0))
    safety = 1 + headroom_ratio
    concurrency = arithmetic.concurrent_requests(peak, response_s)
    return Envelope(
        peak,
        response_s,
        safety,
        resident,
        max(1, arithmetic.instances(concurrency, safety, resident)),
        token_rate_per_s=peak * new_tokens,
        anchor_tokens_per_s=replica.ranks * replica.step.flop_per_s / replica.step.token_flop,
    )


_BLIND_SPOTS = {
    "kv": "it takes mean lengths where the plan takes the seconds in which long ones meet",
    "compute": "it does not know how fast a replica computes, which binds here",
    "latency": "it does not know the objectives, which bind here",
}


def difference(made: Envelope, planned_replicas: int, bound: str, bound_replicas: int) -> str:
    """Say how the envelope comes about and why a plan of `planned_replicas`, bound by `bound`, says something else."""
    reasons = []
    if made.instances != bound_replicas:
        reasons.append(f"{_BLIND_SPOTS[bound]} ({bound_replicas} replicas)")
    if planned_replicas > bound_replicas:
        reasons.append(f"it plans no spare replica ({planned_replicas - bound_replicas} here)")
    return f"envelope: {made.working}; {' and '.join(reasons) or 'the plan comes to the same'}; {made.anchor}"


def _sums(part: Timeline) -> NDArray[np.float64]:
    """µs of the responses, tokens in all, and tokens that are computed: whole numbers, so in any order the same."""
    tokens = part.prompt_tokens + part.output_tokens
    new_tokens = part.prompt_tokens - part.cached_tokens + part.output_tokens
    return np.array([(part.end_us - part.prefill_us).sum(), tokens.sum(), new_tokens.sum()], dtype=np.float64)


def _busiest_minute(timeline: AnyTimeline) -> int:
    """Most requests that arrive in one minute."""
    arrivals = Counter[int]()
    for part in timeline.parts():
        minutes, counts = np.unique(part.prefill_us // MINUTE_US, return_counts=True)
        arrivals.update(dict(zip(minutes.tolist(), counts.tolist(), strict=True)))
    return max(arrivals.values())
