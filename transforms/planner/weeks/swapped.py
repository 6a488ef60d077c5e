"""A week with some of its factors as another week has them, and what it asks of the fleet: one code for all mixtures.

Closed forms at SLO pace, as the plan's demands: KV·time of each request by its own form, KV and compute as 1 s means by
the plan's sweep, of the hours that hold the most work of either week. Tool waits are counted as if contexts were
kept through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import Attempts
from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time
from transforms.planner.residency.occupancy import HOUR_S, PEAK_RATIO, decode_stretches, prefill_stretches
from transforms.planner.residency.pace import decode_work_s, prefill_work_s
from transforms.planner.residency.sweep import MICROS, Sweep
from transforms.planner.residency.timeline import slo_timeline
from transforms.workload import WEEK_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.pace import Pace
    from transforms.planner.residency.timeline import Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.planner.weeks.week_traffic import WeekTraffic

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

FACTORS = ("rate", "lengths", "mix", "burstiness", "cache_hits", "tool_waits")
"""What is swapped: how many requests; how long in each kind; shares of the kinds; when they come (and which lengths
come together); share of the prompt found cached; how many tool waits, and how long."""

BUSY_HOURS = 4
"""Hours of each week, by the peak of KV and of work each, that are swept in every mixture."""
ALL_HOURS = np.arange(WEEK_S // HOUR_S)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Requests with their weights: how many each stands for."""

    attempts: Attempts
    weight: Reals


@dataclass(frozen=True, eq=False)
class Asked:
    """What a mixture asks for: KV·time of its requests (byte·s); each hour's peaks in replicas, without headroom."""

    kv_time_byte_s: float
    kv_replicas: Reals
    compute_replicas: Reals

    def busiest(self) -> Wholes:
        """Places of the hours that ask for most."""
        tops = [np.argsort(peaks)[-BUSY_HOURS:] for peaks in (self.kv_replicas, self.compute_replicas)]
        return np.unique(np.concatenate(tops))


def mixture(weeks: tuple[WeekTraffic, WeekTraffic], later: frozenset[str]) -> Mixture:
    """Requests of the week that `burstiness` names, the other factors as `later` says (in it: those of now).

    As many as that week has in all: `rate` only scales and is left to the caller. A kind that the week lacks and the
    mix has is taken from the other week.
    """
    base = int("burstiness" in later)
    parts = [_part(weeks[base], base, later)]
    shares = _shares(weeks[int("mix" in later)])
    lacking = [kind for kind in shares if not (weeks[base].kind == kind).any()]
    if lacking:
        rows = np.isin(weeks[1 - base].kind, lacking)
        parts.append([column[rows] for column in _part(weeks[1 - base], 1 - base, later)])
    arrived, kind, prompt, output, cached = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    found, place, counts = np.unique(kind, return_inverse=True, return_counts=True)
    weights = np.array([shares.get(int(one), 0.0) for one in found]) / counts
    order = np.argsort(arrived, kind="stable")
    prompt = np.maximum(prompt[order], 1.0)
    unknown, no_flags = np.full(len(order), np.nan), np.zeros(len(order), dtype=np.bool_)
    attempts = Attempts(
        arrived_us=arrived[order].astype(np.int64),
        prompt_tokens=prompt,
        cached_tokens=np.clip(cached[order] * prompt, 0.0, prompt - 1.0),
        output_tokens=output[order],
        queue_s=unknown,
        ttft_s=unknown,
        e2e_s=unknown,
        is_failed=no_flags,
        is_carried=no_flags,
    )
    return Mixture(attempts, (weeks[base].requests * weights[place])[order])


def tool_wait_byte_s(weeks: tuple[WeekTraffic, WeekTraffic], token_bytes: int, later: frozenset[str]) -> float:
    """KV·time of keeping contexts through the tool waits of a mixture, byte·s; `rate` and `mix` included."""
    waits_of, base = int("tool_waits" in later), int("burstiness" in later)
    week, waits = weeks[base], weeks[base].waits
    if not len(waits.kind):
        week, waits, base = weeks[1 - base], weeks[1 - base].waits, 1 - base
    if not len(waits.kind):
        return 0.0
    tokens = waits.tokens[int(int("lengths" in later) != base)]
    wait_s = waits.wait_s[int(waits_of != base)]
    shares, usual = _shares(weeks[int("mix" in later)]), _shares(week)
    kinds, place = np.unique(waits.kind, return_inverse=True)
    weight = np.array([shares.get(int(kind), 0.0) / usual.get(int(kind), np.inf) for kind in kinds])[place]
    per_request = weeks[waits_of].waits_requests / max(weeks[waits_of].requests, 1.0)
    count = per_request * weeks[int("rate" in later)].requests
    return token_bytes * count * float((weight * tokens * wait_s).sum()) / len(waits.kind)


def asked_of(mixed: Mixture, replica: Replica, pace: Pace, hours: Wholes) -> Asked:
    """What a mixture asks for, its peaks those of `hours` of the week."""
    timeline = slo_timeline(mixed.attempts, replica, pace)
    held = prefill_kv_time(timeline, replica).linear_byte_s + decode_kv_time(timeline, replica).linear_byte_s
    kv_bytes, work = _peaks(timeline, mixed.weight, replica, pace, hours)
    return Asked(float(mixed.weight @ held), kv_bytes / replica.kv_capacity_bytes, work)


def _part(week: WeekTraffic, number: int, later: frozenset[str]) -> list[Reals]:
    """Columns of one week's rows: arrival, kind, prompt, output, cached share."""
    lengths = week.own if int("lengths" in later) == number else week.other
    cached = week.own if int("cache_hits" in later) == number else week.other
    return [
        week.arrived_us.astype(np.float64),
        week.kind.astype(np.float64),
        lengths.prompt,
        lengths.output,
        cached.cached_ratio,
    ]


def _shares(week: WeekTraffic) -> dict[int, float]:
    kinds, counts = np.unique(week.kind, return_counts=True)
    return {int(kind): float(count) / len(week.kind) for kind, count in zip(kinds, counts, strict=True)}


def _peaks(timeline: Timeline, weight: Reals, replica: Replica, pace: Pace, hours: Wholes) -> tuple[Reals, Reals]:
    """Peak of each of `hours` (99 % quantile of its 1 s means): KV in bytes, work in replica-seconds a second."""
    prefill, decode = prefill_stretches(timeline, replica), decode_stretches(timeline, replica)
    works = (
        prefill_work_s(replica, pace, timeline.prompt_tokens, timeline.cached_tokens),
        decode_work_s(replica, timeline.prompt_tokens, timeline.output_tokens),
    )
    scale = weight / replica.kv_token_bytes
    lead_s = max(1, int(replica.ttft_p95_s))
    peaks = np.zeros((2, len(hours)))
    for place, hour in enumerate(hours.tolist()):
        begin_us = (hour * HOUR_S - lead_s) * MICROS
        is_near = (timeline.end_us > begin_us) & (timeline.prefill_us < begin_us + (HOUR_S + lead_s) * MICROS)
        rows = np.flatnonzero(is_near)
        sweep = Sweep(HOUR_S + lead_s, curves=2)
        for phase, work in zip((prefill, decode), works, strict=True):
            start_us, end_us = phase.start_us[rows] - begin_us, phase.end_us[rows] - begin_us
            duration_s = (end_us - start_us) / MICROS
            rate = weight[rows] * work[rows] / np.where(duration_s > 0, duration_s, np.inf)
            ends = (phase.from_block_bytes[rows] * scale[rows], phase.to_block_bytes[rows] * scale[rows])
            sweep.add(start_us, end_us, ends, (rate, None))
        held, busy = sweep.means()
        summed = np.cumsum(busy)
        trailing = (summed[lead_s:] - summed[:-lead_s]) / lead_s
        peaks[:, place] = [np.quantile(series, PEAK_RATIO) for series in (held[lead_s:], trailing)]
    return peaks[0] * replica.kv_token_bytes, peaks[1]
