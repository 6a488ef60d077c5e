"""One deployment's week looked at: residency at both paces, the three demands, and how today's fleet stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.instant_peak import instant_max_bytes
from transforms.planner.residency.occupancy import HOUR_S, request_residency, tool_wait_residency, total_block_bytes
from transforms.planner.residency.pace import planned_batch, slo_pace
from transforms.planner.residency.sweep import MICROS
from transforms.planner.residency.timeline import accepted, observed_week, slo_week
from transforms.planner.residency.traffic import windows_of
from transforms.planner.sizing.demand import compute_work, day_tails, latency_demand, week_peak
from transforms.planner.sizing.latency_estimate import latency
from transforms.workload import WEEK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from transforms.planner.residency.occupancy import PhaseResidency, Residency
    from transforms.planner.residency.pace import Pace, PlannedBatch
    from transforms.planner.residency.timeline import WeekTimeline
    from transforms.planner.residency.traffic import Window
    from transforms.planner.sizing.demand import LatencyDemand, Peak
    from transforms.planner.sizing.replica import Replica
    from transforms.planner.sizing.tail import Tail
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]

CENSORING_FILL_RATIO = 0.9
"""Observed residency above this share of today's capacity says what the fleet allowed, not what was asked for."""

SEEN_RATIO = 0.5
"""Share of the attempts with a logged end from which the residency says what was, not what a model makes of it."""

CENSORING_QUEUE_RATIO = 0.5
"""And so does a p95 queue time above this share of the promised time to first token."""

QUEUE_QUANTILE = 0.95


@dataclass(frozen=True)
class AnsweredBeyond:
    """Attempts of the week that the log shows answered though today's max_model_len refuses their prompt."""

    requests: int
    longest_tokens: int
    """Longest prompt with its output; 0 where there are none."""


@dataclass(frozen=True, eq=False)
class WeekDemands:
    """What a week asks of one deployment; peaks in bytes and in replica-seconds per second."""

    pace: Pace
    batch: PlannedBatch | None
    observed: WeekTimeline
    slo: WeekTimeline
    observed_residency: Residency
    slo_residency: Residency
    tool_waits: PhaseResidency
    kv: Peak
    kv_tails: tuple[Tail | None, ...]
    """Tail of the busiest hour at SLO pace, each day."""
    kv_observed: Peak
    kv_instant_bytes: float
    """Instantaneous maximum of the busiest hour at SLO pace."""
    compute: Peak
    latency: LatencyDemand
    usable_requests: int
    """Attempts of the week that the demands are made of: lengths known, prompt not refused."""
    refused_requests: int
    """Attempts of the week whose prompt today's max_model_len refuses: misses, and no part of KV and compute."""
    answered_beyond: AnsweredBeyond
    is_censored: bool


def demands_of_week(workload: Workload, replica: Replica, now_replicas: int) -> WeekDemands:
    """Residency and the three demands of `workload` on a fleet of `replica`s, `now_replicas` of which stand today."""
    pace, windows = slo_pace(replica), windows_of(workload, replica)
    observed = observed_week(workload, replica, pace, _token_s_today(windows, replica, pace, now_replicas))
    slo = slo_week(workload, replica, pace)
    observed_residency, slo_residency = request_residency(observed, replica), request_residency(slo, replica)
    slo_bytes = total_block_bytes(slo_residency)
    kv, kv_observed = week_peak(slo_bytes), week_peak(total_block_bytes(observed_residency))
    hour_us = (kv.hour * HOUR_S * MICROS, (kv.hour + 1) * HOUR_S * MICROS)
    is_seen = bool(np.isfinite(workload.e2e_s).mean() >= SEEN_RATIO) if len(workload.e2e_s) else False
    is_full = is_seen and kv_observed.value > CENSORING_FILL_RATIO * replica.kv_capacity_bytes * now_replicas > 0
    is_accepted, is_of_week = accepted(workload, replica), ~workload.is_carried
    return WeekDemands(
        pace=pace,
        batch=planned_batch(replica, ((part.prompt_tokens, part.output_tokens) for part in slo.parts())),
        observed=observed,
        slo=slo,
        observed_residency=observed_residency,
        slo_residency=slo_residency,
        tool_waits=tool_wait_residency(workload.tool_waits, replica),
        kv=kv,
        kv_tails=day_tails(slo_bytes),
        kv_observed=kv_observed,
        kv_instant_bytes=instant_max_bytes(slo, replica, *hour_us),
        compute=week_peak(compute_work(slo, replica, pace)),
        latency=latency_demand(windows, replica),
        usable_requests=int((is_accepted & is_of_week).sum()),
        refused_requests=int((~is_accepted & is_of_week).sum()),
        answered_beyond=_answered_beyond(workload, ~is_accepted & is_of_week),
        is_censored=is_full or _is_queueing(workload, replica, hour_us),
    )


def _answered_beyond(workload: Workload, is_refused: Flags) -> AnsweredBeyond:
    prompts, outputs = (workload.kept.columns[f"{name}_tokens"][is_refused] for name in ("prompt", "output"))
    is_answered = ~workload.is_failed[is_refused] & (outputs > 0)
    whole_tokens = prompts[is_answered].astype(np.int64) + outputs[is_answered].astype(np.int64)
    return AnsweredBeyond(len(whole_tokens), int(whole_tokens.max(initial=0)))


def _token_s_today(windows: list[Window], replica: Replica, pace: Pace, now_replicas: int) -> Callable[[Wholes], Reals]:
    """Seconds per output token on today's fleet of attempts by the µs they arrive at: those of the window they are in.

    SLO pace where today's fleet is overrun, and where there is none: then somebody else served the traffic.
    """
    by_window = np.full(-(-WEEK_S // replica.window_s), pace.token_s)
    for window in windows if now_replicas else ():
        if not window.traffic.requests_per_s:
            continue
        token_s = latency(window.traffic, replica, now_replicas).tpot_s
        by_window[window.start_s // replica.window_s] = token_s if np.isfinite(token_s) else pace.token_s

    def token_s_at(arrived_us: Wholes) -> Reals:
        place = np.clip(arrived_us // (replica.window_s * MICROS), 0, len(by_window) - 1)
        return by_window[place]

    return token_s_at


def _is_queueing(workload: Workload, replica: Replica, hour_us: tuple[int, int]) -> bool:
    """Whether the logged queue times of the busiest hour eat half of the promise; unknown ones say nothing."""
    inside_s = workload.queue_s[slice(*np.searchsorted(workload.arrived_us, hour_us))]
    queued_s = inside_s[~np.isnan(inside_s)]
    limit_s = CENSORING_QUEUE_RATIO * replica.ttft_p95_s
    return len(queued_s) > 0 and float(np.quantile(queued_s, QUEUE_QUANTILE)) > limit_s
