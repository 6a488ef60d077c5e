"""The interval of a count: whole days redrawn, seeded; none where there are too few."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.planner.interval import FEWEST_DAYS, day_interval
from transforms.planner.sizing import whole_replicas


def count(peaks: np.ndarray) -> int:
    return whole_replicas(float(peaks.max()))


def test_fewer_than_five_days_give_no_interval() -> None:
    days = np.array([[3.0, 4.0, 5.0, 4.0, 0.0, 0.0, 0.0]])
    assert day_interval(days, count, seed=1) is None
    assert day_interval(np.full((1, FEWEST_DAYS), 3.0), count, seed=1) == (3, 3)


def test_same_seed_same_interval_and_equal_days_no_doubt() -> None:
    days = np.array([[9.1, 10.4, 11.2, 9.8, 10.9, 4.0, 3.1]])
    assert day_interval(days, count, seed=7) == day_interval(days, count, seed=7)
    low, high = day_interval(days, count, seed=7) or (0, 0)
    assert low < high
    assert low <= 12 <= high
    assert day_interval(np.full((1, 7), 5.5), count, seed=7) == (6, 6)


def test_a_quiet_weekend_is_no_doubt_about_the_weekdays() -> None:
    days = np.array([[10.0, 10.1, 10.2, 10.1, 10.0, 1.0, 1.0]])
    low, high = day_interval(days, count, seed=3) or (0, 0)
    assert 10 <= low <= high <= 11


def test_the_day_keeps_its_demands_together() -> None:
    """Two demands that never peak on the same day: a redrawn week has both peaks only if it drew both days."""
    days = np.array([[8.0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 8.0]])
    seen: list[tuple[bool, bool]] = []

    def note(peaks: np.ndarray) -> int:
        seen.append((bool(peaks[0] > 3), bool(peaks[1] > 3)))
        return count(peaks)

    day_interval(days, note, seed=5)
    assert {(True, False), (False, True), (True, True), (False, False)} == set(seen)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.5, 40))
def test_bounds_are_ordered_and_near_the_days(seed: int, scale: float) -> None:
    peaks = scale * np.random.default_rng(seed).lognormal(0, 0.1, size=(3, 7))
    low, high = day_interval(peaks, count, seed) or (0, 0)
    assert 1 <= low <= high <= 2 * whole_replicas(float(peaks.max()))
