"""The three demands on a fleet, each in replicas: KV memory, compute, and latency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.residency.occupancy import HOUR_S, hour_peaks, request_residency, total_block_bytes
from transforms.planner.residency.pace import decode_work_s, prefill_work_s, slo_pace
from transforms.planner.residency.sweep import MICROS, Sweep
from transforms.planner.residency.timeline import slo_week
from transforms.planner.sizing.latency_estimate import floor_text, replicas_for
from transforms.planner.sizing.tail import tail_of
from transforms.planner.sizing.window_survey import FULL_WINDOW_REQUESTS
from transforms.workload import WEEK_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.pace import Pace
    from transforms.planner.residency.timeline import AnyTimeline
    from transforms.planner.residency.traffic import Window
    from transforms.planner.sizing.latency_by_replay import LatencyReplay
    from transforms.planner.sizing.latency_estimate import Traffic
    from transforms.planner.sizing.replica import Replica
    from transforms.planner.sizing.tail import Tail
    from transforms.planner.steps.step_time import Number
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

DAY_S = 86_400


@dataclass(frozen=True, eq=False)
class Peak:
    """The largest of the hours' peaks, the hour it falls in, and the largest peak of each day."""

    value: float
    hour: int
    """Of the week, 0 … 167."""
    by_day: Reals


@dataclass(frozen=True, eq=False)
class LatencyDemand:
    """Fewest replicas that keep the objectives in every window that counts; None where no number does."""

    replicas: int | None
    window: Window | None
    """The window that asks for most (or cannot be met)."""
    by_day: tuple[Traffic | None, ...]
    """Traffic of the window that asks for most on each day; None on days that no window judges."""
    is_thin: bool
    """No window has enough requests to judge an objective: the fullest one was taken."""
    closed_replicas: int | None = None
    """What the closed forms came to, where `replicas` comes from replays."""
    replay: LatencyReplay | None = None
    """What stands behind `replicas`; None where they come from the closed forms."""

    def floor_text(self, replica: Replica) -> str | None:
        """Why no number of replicas meets the objectives; None where some number does."""
        if self.replicas is not None or self.window is None:
            return None
        return self.replay.floor_text if self.replay is not None else floor_text(self.window.traffic, replica)

    def replicas_of_day(self, day: int, factor: float, replica: Replica) -> int:
        """Replicas for the most demanding window of `day` with `factor` times as many requests; 0 without one.

        By the closed forms, times what replays of the week come to against them.
        """
        traffic = self.by_day[day]
        if traffic is None:
            return 0
        found = replicas_for(traffic.denser(factor), replica)
        if self.replay is None or self.replicas is None:
            return found or 0
        if found is None or self.closed_replicas is None:
            return self.replicas
        return math.ceil(found * self.replicas / self.closed_replicas)


def week_peak(series: Reals) -> Peak:
    """Peak of a week of 1 s means: the largest 99 % quantile of a clock hour (UTC), and the same for each day.

    Taken over all hours, not in the hour with the largest mean, so that more requests never lower it.
    """
    hours = hour_peaks(series)
    busiest = int(hours.argmax())
    return Peak(float(hours[busiest]), busiest, hours.reshape(-1, DAY_S // HOUR_S).max(axis=1))


@dataclass(frozen=True)
class SloPeaks:
    """Week's peaks at SLO pace: KV in bytes, work in replica-seconds a second."""

    kv_bytes: float
    work: float


def slo_peaks(workload: Workload, replica: Replica) -> SloPeaks:
    """Peaks of the accepted requests of `workload` on replicas like `replica`."""
    pace = slo_pace(replica)
    slo = slo_week(workload, replica, pace)
    held, work = total_block_bytes(request_residency(slo, replica)), compute_work(slo, replica, pace)
    return SloPeaks(week_peak(held).value, week_peak(work).value)


def day_tails(series: Reals) -> tuple[Tail | None, ...]:
    """Tail of the hour with the largest peak of each day of a week of 1 s means; None where it has none."""
    hours, by_hour = hour_peaks(series), series.reshape(-1, HOUR_S)
    days = hours.reshape(-1, DAY_S // HOUR_S)
    return tuple(tail_of(by_hour[day * (DAY_S // HOUR_S) + int(peaks.argmax())]) for day, peaks in enumerate(days))


def kv_demand(peak_bytes: Number, replica: Replica, headroom_ratio: float) -> Number:
    """Replicas whose KV memory holds `peak_bytes` with the headroom on top."""
    return peak_bytes * (1 + headroom_ratio) / replica.kv_capacity_bytes


def compute_work(timeline: AnyTimeline, replica: Replica, pace: Pace) -> Reals:
    """Replica-seconds of work per second at SLO pace, 1 s means over the week, one element a second.

    Prefill work is spread over the prefill and decode work over the decode; then each second takes the mean of the
    seconds a first token may still wait for (ttft_p95_s): work within the promise need not be done at once.
    """
    sweep = Sweep(WEEK_S, curves=1)
    for part in timeline.parts():
        prefill = prefill_work_s(replica, pace, part.prompt_tokens, part.cached_tokens)
        _add_work(sweep, part.prefill_us, part.first_us, prefill)
    for part in timeline.parts():
        _add_work(sweep, part.first_us, part.end_us, decode_work_s(replica, part.prompt_tokens, part.output_tokens))
    return _trailing_means(sweep.means()[0], max(1, int(replica.ttft_p95_s)))


def _add_work(sweep: Sweep, start_us: Wholes, end_us: Wholes, work_s: Reals) -> None:
    """Spread `work_s` evenly from start to end, each."""
    duration_s = (end_us - start_us) / MICROS
    sweep.add(start_us, end_us, (work_s / np.where(duration_s > 0, duration_s, np.inf), None))


def compute_demand(peak_work: Number, headroom_ratio: float) -> Number:
    """Replicas that do `peak_work` replica-seconds per second with the headroom on top."""
    return peak_work * (1 + headroom_ratio)


def latency_demand(windows: list[Window], replica: Replica) -> LatencyDemand:
    """Fewest replicas for the most demanding window with enough requests; without such a window, for the fullest."""
    judged = [window for window in windows if window.requests >= FULL_WINDOW_REQUESTS]
    is_thin = not judged
    if is_thin and windows:
        judged = [max(windows, key=lambda window: window.requests)]
    by_day: list[Traffic | None] = [None] * (WEEK_S // DAY_S)
    most_of_day = [0] * len(by_day)
    worst: Window | None = None
    for window in judged:
        needed = replicas_for(window.traffic, replica)
        if needed is None:
            return LatencyDemand(None, window, tuple(by_day), is_thin)
        day = window.start_s // DAY_S
        if needed > max(most_of_day):
            worst = window
        if _asks_more(needed, window.traffic, most_of_day[day], by_day[day]):
            most_of_day[day], by_day[day] = needed, window.traffic
    return LatencyDemand(max(most_of_day), worst, tuple(by_day), is_thin)


def _asks_more(needed: int, traffic: Traffic, most: int, earlier: Traffic | None) -> bool:
    """Whether `traffic` asks for more replicas than the day's window so far, or for as many at a higher rate."""
    rate = 0.0 if earlier is None else earlier.requests_per_s
    return (needed, traffic.requests_per_s) > (most, rate)


def _trailing_means(series: Reals, window_s: int) -> Reals:
    """Mean of each element and the `window_s` − 1 before it, the series taken as 0 before its start."""
    summed = np.cumsum(series)
    summed[window_s:] -= summed[:-window_s].copy()
    means: Reals = summed / window_s
    return means
