"""Why the P95 time to first token moved: the busiest hours of two weeks replayed, one factor at a time swapped.

Where memory is no limit, three things of the traffic can move it: arrivals, lengths, cache hits; each is swapped from
both weeks' sides and the mean of the two is its part. What the KV pool adds to each week's P95 is the rest: KV
pressure, or preemption where the pool takes running requests back. A cached prefix is replayed as not there at all.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.provenance import MODELLED, weakest
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import NO_LIMIT, Router, Settings, TraceColumns
from transforms.planner.replay.step_costs import step_costs
from transforms.planner.residency.occupancy import HOUR_S
from transforms.planner.weeks.week_taken import LEAD_S, P95, Hour, Marks
from transforms.planner.weeks.week_traffic import as_other

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_types import ReplayResult
    from transforms.planner.sizing.plan_replicas import Site
    from transforms.planner.sizing.replica import Replica
    from transforms.planner.weeks.week_taken import FirstTokens, TakenWeek

    Reals = NDArray[np.float64]

MOVED_RATIO = 0.2
"""A P95 that moved by less is left alone."""

AMPLE = 64
"""Times the KV pool at which memory is no limit."""

PREEMPTED_RATIO = 0.02
"""Share of the requests preempted, above that of the earlier week, from which the pool's part is called preemption."""

TRAFFIC = ("arrivals", "lengths", "cache_hits")


def ttft_rows(earlier: TakenWeek, later: TakenWeek, site: Site) -> list[dict[str, Any]]:
    """Rows of plan_ttft_causes, the largest part first; none where the logged P95 did not move by over 20 %."""
    weeks = (earlier.first_tokens, later.first_tokens)
    before, now = (week.p95_s for week in weeks)
    if before is None or now is None or abs(now / before - 1) <= MOVED_RATIO or not site.now_replicas:
        return []
    hours = (weeks[0].hour, weeks[1].hour)
    if not all(len(hour.arrived_s) for hour in hours):
        return []
    parts = causes_s(hours, site.replica, site.now_replicas)
    words = {"split": split_s(*weeks), "cause": parts}
    known = {"previous_week": earlier.week, "previous_ttft_p95_s": before, "ttft_p95_s": now}
    word = weakest(MODELLED, site.replica.step.provenance)
    return [
        {**known, "kind": kind, "cause": cause, "part_s": part, "provenance": word}
        for kind, found in words.items()
        for cause, part in found.items()
    ]


def split_s(earlier: FirstTokens, later: FirstTokens) -> dict[str, float]:
    """Change of the mean queue and the mean prefill of the slowest 5 %, s; empty where queues are not logged."""
    if earlier.slowest_s is None or later.slowest_s is None:
        return {}
    changes = (now - before for before, now in zip(earlier.slowest_s, later.slowest_s, strict=True))
    return dict(zip(("queue", "prefill"), changes, strict=True))


def causes_s(hours: tuple[Hour, Hour], replica: Replica, replicas: int) -> dict[str, float]:
    """Part of the P95's change that each of the five causes has, s, the largest first."""

    def ample(later: frozenset[str]) -> float:
        mixed = _mixed(hours, later)
        return _p95_s(_replayed(mixed, replica, replicas, AMPLE), mixed)

    everything = frozenset(TRAFFIC)
    known = {chosen: ample(chosen) for chosen in (frozenset[str](), everything)}
    parts = {}
    for factor in TRAFFIC:
        forward = ample(frozenset({factor})) - known[frozenset()]
        backward = known[everything] - ample(everything - {factor})
        parts[factor] = (forward + backward) / 2
    pools = [_replayed(hour, replica, replicas, 1) for hour in hours]
    added = [
        _p95_s(pool, hour) - known[chosen]
        for pool, hour, chosen in zip(pools, hours, (frozenset[str](), everything), strict=True)
    ]
    preempted = [float((pool.preemptions > 0).mean()) for pool in pools]
    is_preempted = abs(preempted[1] - preempted[0]) >= PREEMPTED_RATIO
    parts |= {"kv_pressure": 0.0, "preemption": 0.0}
    parts["preemption" if is_preempted else "kv_pressure"] = added[1] - added[0]
    return dict(sorted(parts.items(), key=lambda part: -abs(part[1])))


def _mixed(hours: tuple[Hour, Hour], later: frozenset[str]) -> Hour:
    """Arrivals of one hour with lengths and cached shares of the same or the other, each at its place."""
    base = int("arrivals" in later)
    own, other = hours[base].marks, hours[1 - base].marks
    lengths = own if int("lengths" in later) == base else _moved(own, other)
    cached = own if int("cache_hits" in later) == base else _moved(own, other)
    return Hour(hours[base].arrived_s, Marks(lengths.prompt, lengths.output, cached.cached_ratio))


def _moved(own: Marks, other: Marks) -> Marks:
    kinds = np.zeros(len(own.prompt), dtype=np.int64), np.zeros(len(other.prompt), dtype=np.int64)
    return Marks(*(as_other(getattr(own, name), kinds[0], getattr(other, name), kinds[1]) for name in vars(own)))


def _replayed(hour: Hour, replica: Replica, replicas: int, pools: int) -> ReplayResult:
    """The hour on a fleet whose engines have `pools` times their KV pool."""
    pool = replica.rank_pool
    limit = NO_LIMIT if replica.max_model_len_tokens is None else replica.max_model_len_tokens
    prompt = np.maximum(np.rint(hour.marks.prompt * (1 - hour.marks.cached_ratio)), 1).astype(np.int32)
    trace = TraceColumns(
        arrived_s=hour.arrived_s,
        prompt_tokens=np.minimum(prompt, limit - 1),
        output_tokens=np.maximum(np.rint(hour.marks.output), 1).astype(np.int32),
    )
    settings = Settings(
        pool=replace(pool, units=pool.units * pools),
        max_num_seqs=replica.max_num_seqs,
        max_num_batched_tokens=replica.max_num_batched_tokens,
        max_model_len=limit,
        replicas=replicas * replica.ranks,
        router=Router.LEAST_OUTSTANDING,
    )
    return replay(trace, settings, step_costs(replica.step))


def _p95_s(result: ReplayResult, hour: Hour) -> float:
    """P95 of the times to first token after the lead, s; an hour for requests that got none."""
    counted = result.ttft_s[hour.arrived_s >= LEAD_S]
    times = counted if len(counted) else result.ttft_s
    return float(np.quantile(np.where(np.isfinite(times), times, float(HOUR_S)), P95))
