"""Latency of R replicas by closed forms, until a replay says better: how long the queue, a prefill and a token take.

One hour is looked at as steady traffic at the rate its requests saw (the 95 % quantile of the rate per minute, weighted
by requests), shared evenly by R engines (replicas, or their data-parallel ranks). A step takes base + load, so decoding
B = λ·O·τ requests gives τ = base / (1 − λ·work) for each roofline term, and the larger one holds. Prompts queue for the
prefill share of full steps as in M/G/R (Erlang's C with the Allen–Cunneen correction); a request misses when its own
prefill and its wait exceed the promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.steps.step_time import Batch, prefill_of, step_s, ttft_floor_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.sizing.replica import Replica

    Reals = NDArray[np.float64]

ATTAINED_RATIO = 0.95
"""The objectives are 95 % quantiles (ttft_p95_s, tpot_p95_s)."""

NORMAL_95 = 1.645
"""95 % quantile of the standard normal: concurrency of a Poisson stream is taken as mean + this × its deviation."""

MOST_REPLICAS = 1 << 20

EXPERT_ROUNDS = 60
"""Rounds towards the step whose tokens ask for the experts it reads; each is nearer from below."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """What one window asks of the fleet: a rate, mean lengths, and a sample of prompts for the quantiles."""

    requests_per_s: float
    output_mean_tokens: float
    context_mean_tokens: float
    prompt_tokens: Reals
    cached_tokens: Reals
    refused_ratio: float = 0.0
    """Share of the window's requests whose prompt the engine refuses: misses, whatever the number of replicas."""

    def denser(self, factor: float) -> Traffic:
        """The same requests arriving `factor` times as often."""
        return replace(self, requests_per_s=self.requests_per_s * factor)


@dataclass(frozen=True, eq=False)
class Latency:
    """What R replicas give that traffic."""

    tpot_s: float
    """Infinite where the replicas do not keep up."""
    wait_ratio: float
    """Probability of waiting for prefill at all."""
    wait_mean_s: float
    """Mean wait of those who wait; waits fall off exponentially."""
    service_s: Reals
    """From the first chunk to the first token, each prompt of the sample, the running step included."""

    @property
    def is_stable(self) -> bool:
        """Whether the replicas keep up with the traffic."""
        return math.isfinite(self.tpot_s) and math.isfinite(self.wait_mean_s)

    def late_ratio(self, limit_s: float) -> float:
        """Share of requests whose first token comes later than `limit_s`."""
        if not self.is_stable:
            return 1.0
        spare_s = limit_s - self.service_s
        waiting = self.wait_ratio * np.exp(-np.maximum(spare_s, 0.0) / max(self.wait_mean_s, 1e-12))
        return float(np.where(spare_s < 0, 1.0, waiting).mean())

    def ttft_s(self, ratio: float) -> float:
        """Quantile of the time to first token, s; infinite where the replicas do not keep up."""
        if not self.is_stable:
            return math.inf
        low, high = 0.0, float(self.service_s.max(initial=0.0)) + 60 * self.wait_mean_s + 1e-9
        for _halving in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.late_ratio(middle) > 1 - ratio else (low, middle)
        return high

    def queue_s(self, ratio: float) -> float:
        """Quantile of the wait before prefill, s."""
        if not self.is_stable:
            return math.inf
        return self.wait_mean_s * math.log(max(self.wait_ratio / (1 - ratio), 1.0))


def latency(traffic: Traffic, replica: Replica, replicas: int) -> Latency:
    """Latency of `traffic` shared by `replicas` replicas; infinite times where they do not keep up."""
    engines = replicas * replica.ranks
    rate_per_s = traffic.requests_per_s / engines
    token_s = _step_s(traffic, replica, rate_per_s)
    decoding = rate_per_s * traffic.output_mean_tokens * token_s
    swing = decoding + NORMAL_95 * math.sqrt(decoding) if math.isfinite(decoding) else math.inf
    room = min(replica.max_num_seqs, replica.rank_capacity_tokens / max(traffic.context_mean_tokens, 1.0))
    if swing > max(room, 1.0):
        return Latency(math.inf, 1.0, math.inf, np.full(traffic.prompt_tokens.shape, math.inf))
    batch = Batch(max(replica.max_num_batched_tokens - decoding, 1.0), decoding, traffic.context_mean_tokens)
    own_s = prefill_of(
        replica.step, traffic.prompt_tokens, traffic.cached_tokens, batch, largest=np.maximum, ceiling=np.ceil
    )
    wait_ratio, wait_mean_s = _queue(traffic, replica, engines, batch)
    return Latency(token_s, wait_ratio, wait_mean_s, own_s + token_s / 2)


def replicas_for(traffic: Traffic, replica: Replica) -> int | None:
    """Fewest replicas that keep both objectives for this traffic; None where no number does."""
    if _allowed_late_ratio(traffic) is None or not _is_met(traffic, replica, MOST_REPLICAS):
        return None
    high = 1
    while not _is_met(traffic, replica, high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_met(traffic, replica, middle) else (middle, high)
    return high


def floor_text(traffic: Traffic, replica: Replica) -> str:
    """Say what an idle replica of its own would give each request: the floor no number of replicas gets below."""
    if _allowed_late_ratio(traffic) is None:
        return (
            f"no number of replicas meets the objective: {100 * traffic.refused_ratio:.2g} % of the prompts of that "
            f"window are of max_model_len = {replica.max_model_len_tokens} or more, and a request that is refused "
            "is a miss"
        )
    alone = latency(traffic, replica, MOST_REPLICAS)
    new_tokens = float(np.quantile(traffic.prompt_tokens - traffic.cached_tokens, ATTAINED_RATIO))
    floor_s = ttft_floor_s(replica.step, new_tokens, 0.0)
    return (
        f"no number of replicas meets ttft_p95_s = {replica.ttft_p95_s:g} and tpot_p95_s = {replica.tpot_p95_s:g}: "
        f"on an idle replica TTFT p95 is {alone.ttft_s(ATTAINED_RATIO):.3g} s (floor {floor_s:.3g} s at full peak) "
        f"and a token takes {alone.tpot_s:.3g} s"
    )


def _is_met(traffic: Traffic, replica: Replica, replicas: int) -> bool:
    found, allowed = latency(traffic, replica, replicas), _allowed_late_ratio(traffic) or 0.0
    return found.tpot_s <= replica.tpot_p95_s and found.late_ratio(replica.ttft_p95_s) <= allowed


def _allowed_late_ratio(traffic: Traffic) -> float | None:
    """Share of the requests taken that may be late, the refused ones being misses; None where those are too many."""
    missed = 1 - ATTAINED_RATIO - traffic.refused_ratio
    return missed / (1 - traffic.refused_ratio) if missed >= 0 else None


def _step_s(traffic: Traffic, replica: Replica, rate_per_s: float) -> float:
    """Mean step at this rate per engine: base / (1 − λ·work), the larger of compute and memory; inf if unstable."""
    step = replica.step
    outputs, context = traffic.output_mean_tokens, traffic.context_mean_tokens
    new = float((traffic.prompt_tokens - traffic.cached_tokens).mean())
    pairs = float(((traffic.prompt_tokens**2 - traffic.cached_tokens**2) / 2).mean()) * step.prefill_pair_ratio
    compute_s = (
        step.token_flop / step.flop_per_s * (new + outputs)
        + step.sampled_compute_s * (outputs + 1)
        + step.pair_compute_s * (pairs + outputs * context)
    )
    read_s = (step.context_memory_s * context + step.sequence_s) * outputs
    rest_s = step.token_collective_s * (new + outputs) + step.sequence_overhead_s * outputs
    by_compute = _loaded(step.step_overhead_s, rate_per_s * (compute_s + rest_s))
    alone_s = step_s(step, 0.0, 1.0, context)
    token_s = max(by_compute, alone_s)
    for _ in range(EXPERT_ROUNDS if step.expert_s else 1):
        unasked = step.unasked_ratio ** min(rate_per_s * token_s * (new + outputs), replica.max_num_batched_tokens)
        by_memory = _loaded(step.base_s - step.expert_s * unasked, rate_per_s * (read_s + rest_s))
        token_s = max(by_compute, by_memory, alone_s)
        if not math.isfinite(token_s):
            return math.inf
    is_within_budget = rate_per_s * token_s * (new + outputs) <= replica.max_num_batched_tokens
    return token_s if is_within_budget else math.inf


def _loaded(base_s: float, load: float) -> float:
    return base_s / (1 - load) if load < 1 else math.inf


def _queue(traffic: Traffic, replica: Replica, engines: int, batch: Batch) -> tuple[float, float]:
    """Probability of a wait and its mean: M/G/R on the time a backlog's full steps take for each prompt."""
    new = traffic.prompt_tokens - traffic.cached_tokens
    context = float((traffic.prompt_tokens + traffic.cached_tokens).mean()) / 2
    full_s = step_s(replica.step, batch.chunk_tokens, batch.decode_requests, batch.context_tokens, context)
    service_s = new / batch.chunk_tokens * full_s
    mean_s = float(service_s.mean())
    offered = traffic.requests_per_s * mean_s
    if offered >= engines:
        return 1.0, math.inf
    if offered == 0:
        return 0.0, 0.0
    spread = float(service_s.var()) / mean_s**2
    return _erlang_c(engines, offered), mean_s / (engines - offered) * (1 + spread) / 2


def _erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/c with `offered` erlangs, by the stable recursion of Erlang's B."""
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered * blocked / (busy + offered * blocked)
        if blocked < 1e-300:  # noqa: PLR2004 - smaller than any float that matters; more servers only shrink it
            return 0.0
    return blocked / (1 - offered / servers * (1 - blocked))
