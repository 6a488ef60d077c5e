"""The interval of a count: whole days redrawn, seeded; none where there are too few."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.planner.sizing.gpus import whole_replicas
from transforms.planner.sizing.interval import FEWEST_DAYS, DayDemands, day_interval

Latency = Callable[[int, float], int]


def count(demands: list[float]) -> int:
    return max(map(whole_replicas, demands))


def days(
    kv: object, compute: object = None, latency: Callable[[int, float], int] = lambda day, factor: 0
) -> DayDemands:
    peaks = np.asarray(kv, dtype=np.float64)
    return DayDemands(peaks, peaks / 2 if compute is None else np.asarray(compute, dtype=np.float64), latency)


def test_fewer_than_five_days_give_no_interval() -> None:
    assert day_interval(days([3.0, 4.0, 5.0, 4.0, 0.0, 0.0, 0.0]), count, seed=1) is None
    assert day_interval(days([3.0] * FEWEST_DAYS), count, seed=1) == (3, 3)


def test_same_seed_same_interval_and_equal_days_no_doubt() -> None:
    week = days([9.1, 10.4, 11.2, 9.8, 10.9, 4.0, 3.1])
    assert day_interval(week, count, seed=7) == day_interval(week, count, seed=7)
    low, high = day_interval(week, count, seed=7) or (0, 0)
    assert low < high
    assert low <= 12 <= high
    assert day_interval(days([5.5] * 7), count, seed=7) == (6, 6)


def test_a_quiet_weekend_is_no_doubt_about_the_weekdays() -> None:
    low, high = day_interval(days([10.0, 10.1, 10.2, 10.1, 10.0, 1.0, 1.0]), count, seed=3) or (0, 0)
    assert 10 <= low <= high <= 11


def test_the_day_keeps_its_demands_together() -> None:
    """Two demands that never peak on the same day: a redrawn week has both peaks only if it drew both days."""
    seen: list[tuple[bool, bool]] = []

    def note(demands: list[float]) -> int:
        seen.append((demands[0] > 4, demands[1] > 4))
        return count(demands)

    day_interval(days([8.0, 1, 1, 1, 1, 1, 1.1], [1, 1, 1, 1, 1, 1, 8.0]), note, seed=5)
    assert {(True, False), (False, True), (True, True), (False, False)} == set(seen)


def test_a_latency_demand_in_whole_replicas_is_no_noise() -> None:
    """One replica keeps the objective up to three times the traffic: the whole number is not blown up by the kernel."""

    def latency(day: int, factor: float) -> int:
        return math.ceil((0.3 if day else 0.34) * factor)

    low, high = day_interval(days([0.2, 0.3, 0.1, 0.25, 0.2, 0.22, 0.28], latency=latency), count, seed=2) or (0, 0)
    assert (low, high) == (1, 1)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.floats(0.5, 40),
    patience=st.floats(1.0, 5.0),
)
def test_a_looser_objective_never_raises_an_end(seed: int, scale: float, patience: float) -> None:
    """Looser, every day's compute and latency demand is lower by a factor of its own; KV does not know of it."""
    random = np.random.default_rng(seed)
    kv, compute, latency = scale * random.lognormal(0, 0.2, size=(3, 7))
    relief = random.uniform(1 / patience, 1.0, size=7)
    strict = days(kv, compute, lambda day, factor: whole_replicas(latency[day] * factor))
    loose = days(kv, compute * relief, lambda day, factor: whole_replicas(latency[day] * relief[day] * factor))
    before, after = day_interval(strict, count, seed) or (0, 0), day_interval(loose, count, seed) or (0, 0)
    assert after[0] <= before[0]
    assert after[1] <= before[1]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.5, 40))
def test_twice_the_traffic_never_lowers_an_end(seed: int, scale: float) -> None:
    kv, compute, latency = scale * np.random.default_rng(seed).lognormal(0, 0.2, size=(3, 7))
    once = days(kv, compute, lambda day, factor: whole_replicas(latency[day] * factor))
    twice = days(2 * kv, 2 * compute, lambda day, factor: whole_replicas(2 * latency[day] * factor))
    before, after = day_interval(once, count, seed) or (0, 0), day_interval(twice, count, seed) or (0, 0)
    assert after[0] >= before[0]
    assert after[1] >= before[1]
