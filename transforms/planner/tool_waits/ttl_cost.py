"""What keeping KV through tool waits costs, how long it pays, and the best time to keep it (planner.md §5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.block_rounding import block_bytes
from transforms.planner.residency.pace import prefill_work_s, slo_pace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.sizing.replica import Replica

    Reals = NDArray[np.float64]

CLOSE_RATIO = 0.005
"""The simplest time (for ever, then not at all) is taken where it costs so little more than the best one: the largest
gaps of a week are few, and no time should hang on the last of them."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """Tool waits and what each asks for; one element a wait."""

    wait_s: Reals
    held_bytes: Reals
    """What its context holds in whole blocks."""
    holding_ratio: Reals
    """Its share of a replica's KV: GPU·s a second that holding takes while the pool is full, a replica being one."""
    recompute_s: Reals
    """Replica-seconds of prefill if it is lost."""


def gaps_of(replica: Replica, wait_s: Reals, context_tokens: Reals, shared_tokens: Reals | float = 0.0) -> Gaps:
    """Waits of `context_tokens` each on `replica`; the first `shared_tokens` of a context outlive it in any case."""
    held = block_bytes(replica.groups, np.maximum(context_tokens - 1, 0))
    shared = np.minimum(shared_tokens, np.maximum(context_tokens - 1, 0))
    recompute_s = prefill_work_s(replica, slo_pace(replica), context_tokens, shared)
    return Gaps(wait_s, held, held / replica.kv_capacity_bytes, recompute_s)


def break_even_s(replica: Replica, context_tokens: Reals) -> Reals:
    """w*(P): the wait at which holding a context on a full pool costs what computing it anew does, s.

    With every layer attending to everything and without the quadratic term it is capacity_tokens over
    prefill_tokens_per_s, whatever the length; windows and states hold less and make it a curve.
    """
    gaps = gaps_of(replica, np.zeros_like(context_tokens), context_tokens)
    with np.errstate(divide="ignore"):
        return gaps.recompute_s / gaps.holding_ratio


def ttl_cost_s(gaps: Gaps, ttl_s: float, full_ratio: float = 1.0) -> float:
    """Replica-seconds of all waits together: λ·(b/B)·min(gap, ttl) + prefill of those that outlast it."""
    holding_s = full_ratio * float((gaps.holding_ratio * np.minimum(gaps.wait_s, ttl_s)).sum())
    return holding_s + float(gaps.recompute_s[gaps.wait_s > ttl_s].sum())


def best_ttl_s(gaps: Gaps, full_ratio: float = 1.0) -> float:
    """Time to keep KV at which `ttl_cost_s` is least, s: 0, one of the waits, or infinite."""
    if len(gaps.wait_s) == 0 or full_ratio == 0:
        return math.inf
    order = np.argsort(gaps.wait_s, kind="stable")
    wait_s, holding = gaps.wait_s[order], gaps.holding_ratio[order]
    recompute_s = gaps.recompute_s[order]
    ended = np.cumsum(holding * wait_s)
    lasting = holding.sum() - np.cumsum(holding)
    lost = recompute_s.sum() - np.cumsum(recompute_s)
    costs = full_ratio * (ended + lasting * wait_s) + lost
    never, ever = float(recompute_s.sum()), float(costs[-1])
    least = min(never, float(costs.min()))
    for ttl_s, cost in ((math.inf, ever), (0.0, never)):
        if cost <= least * (1 + CLOSE_RATIO):
            return ttl_s
    return float(wait_s[np.flatnonzero(costs == costs.min())[-1]])
