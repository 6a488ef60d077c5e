"""Verdicts on results made by hand: a queue in front of one server, by Lindley's recursion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transforms.planner.replay.replay_types import ReplayResult, Status
from transforms.planner.replay.verdict import BACKLOGGED, OVERLOADED, STABLE, backlog, verdict_of


def served(arrived_s: NDArray[np.float64], service_s: NDArray[np.float64], seats: int = 1) -> ReplayResult:
    """FIFO on `seats` servers."""
    free = np.zeros(seats)
    queue_s = np.zeros(len(arrived_s))
    for n, (at, work) in enumerate(zip(arrived_s, service_s, strict=True)):
        first = int(np.argmin(free))
        begin = max(at, free[first])
        queue_s[n], free[first] = begin - at, begin + work
    rows = len(arrived_s)
    zeros = np.zeros(rows, dtype=np.int32)
    end_s = arrived_s + queue_s + service_s
    return ReplayResult(
        status=np.full(rows, Status.COMPLETED, dtype=np.int8),
        arrived_s=arrived_s,
        queue_s=queue_s,
        ttft_s=queue_s + service_s / 2,
        e2e_s=queue_s + service_s,
        output_tokens=zeros + 2,
        cached_tokens=zeros,
        preemptions=zeros,
        replica=zeros.astype(np.int16),
        kv_token_s=np.zeros(rows),
        kv_unit_s=np.zeros(rows),
        kv_shared_unit_s=np.zeros(rows),
        makespan_s=float(end_s.max() - arrived_s.min()),
        preempted=0,
        steps=0,
        peak_units=0,
        jumps=0,
        paid_replica_s=0.0,
        pinned_unit_s=np.zeros(rows),
    )


def poisson(random: np.random.Generator, rate: float, count: int) -> NDArray[np.float64]:
    return np.cumsum(random.exponential(1 / rate, count))


def test_a_queue_at_70_and_90_percent_is_stable_at_110_and_140_overloaded_in_95_of_100_seeds():
    for load, word in ((0.7, STABLE), (0.9, STABLE), (1.1, OVERLOADED), (1.4, OVERLOADED)):
        right = 0
        for seed in range(100):
            random = np.random.default_rng(seed)
            arrived_s = poisson(random, load, 4000)
            right += verdict_of(served(arrived_s, random.exponential(1.0, 4000))).word == word
        assert right >= 95, (load, right)


def test_a_burst_of_half_an_hour_that_drains_is_backlogged():
    for seed in range(20):
        random = np.random.default_rng(seed)
        calm, burst, after = (poisson(random, rate, count) for rate, count in ((2.5, 9000), (7.5, 13500), (2.5, 18000)))
        arrived_s = np.concatenate([calm, calm[-1] + burst, calm[-1] + burst[-1] + after])
        verdict = verdict_of(served(arrived_s, random.exponential(1.0, len(arrived_s)), seats=5))
        assert verdict.word == BACKLOGGED
        assert calm[-1] < verdict.peak_at_s < calm[-1] + burst[-1] + 60


def test_those_who_give_up_stay_in_the_backlog():
    random = np.random.default_rng(0)
    arrived_s = poisson(random, 1.3, 3000)
    result = served(arrived_s, random.exponential(1.0, 3000))
    is_gone = result.queue_s > 50
    result.queue_s[is_gone] = np.nan
    result.status[is_gone] = Status.TIMED_OUT
    assert verdict_of(result).word == OVERLOADED
    assert backlog(result)[1][-1] >= is_gone.sum()


def test_the_trend_has_an_interval_round_it_and_the_numbers_say_when():
    random = np.random.default_rng(1)
    arrived_s = poisson(random, 1.2, 5000)
    verdict = verdict_of(served(arrived_s, random.exponential(1.0, 5000)))
    assert verdict.growth_low_requests_per_s < 0.2 < verdict.growth_high_requests_per_s
    assert verdict.growth_low_requests_per_s < verdict.growth_requests_per_s < verdict.growth_high_requests_per_s
    assert verdict.drain_s > 100


def test_refused_requests_that_no_engine_could_serve_are_no_backlog():
    result = served(np.arange(100.0), np.full(100, 0.5))
    result.status[:50] = Status.PROMPT_TOO_LONG
    result.queue_s[:50] = np.nan
    arrived_s, waiting = backlog(result)
    assert len(arrived_s) == 50
    assert waiting.max() == 0
    assert verdict_of(result).word == STABLE


def test_sessions_that_throttle_themselves_are_overloaded_though_they_drain_in_the_end():
    """Turns ask one after the other, so that nobody is left waiting in the end: the last first turn is what counts."""
    random = np.random.default_rng(4)
    first_s = poisson(random, 1.5, 4000)
    later_s = first_s[-1] + 2000 + 2 * np.arange(4000.0)
    result = served(np.concatenate([first_s, later_s]), random.exponential(1.0, 8000))
    parent = np.where(np.arange(8000) < 4000, -1, 0).astype(np.int32)
    assert verdict_of(result).word == BACKLOGGED
    assert verdict_of(result, parent).word == OVERLOADED
