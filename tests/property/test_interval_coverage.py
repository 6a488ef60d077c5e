"""The study behind the 90 % interval: seeded weeks whose true need is known, 5 to 40 replicas."""

from __future__ import annotations

import numpy as np
import pytest

from transforms.planner.sizing.gpus import whole_replicas
from transforms.planner.sizing.interval import NORMAL_MEDIAN, DayDemands, day_interval
from transforms.planner.sizing.tail import Tail, tail_of

WORLDS = {
    "every day alike": np.ones(7),
    "half at weekends": np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5]),
    "a busy middle": np.array([0.9, 1.0, 1.0, 0.97, 0.93, 0.6, 0.55]),
}
SPREADS = (0.05, 0.1, 0.15)
WEEKS_OF_TRUTH = 4000


def week(random: np.random.Generator, shape: np.ndarray, spread: float, weeks: int) -> np.ndarray:
    """Peaks of the days of `weeks` weeks, in units of the need of a plain busy day: log-normal."""
    return shape * np.exp(random.normal(0.0, spread, size=(weeks, 7)))


TAIL = Tail(threshold=1.0, scale=0.08, shape=0.1, clusters=30)
"""Seconds of a busy hour above its 95 % quantile, in units of that: a tenth above it at the 99 % quantile."""


def study(world: str, spread: float, draws: int, error: float = 0.0) -> tuple[float, float]:
    """Share of weeks whose interval holds the true need, and the median width over the need.

    The true need is what the median week of that world needs. One week of it is seen, and counted from. With `error`
    (median, of the step times) the world needs compute, computed with step times so far off, and the peak of each day
    is that of an hour with a tail like TAIL.
    """
    largest = week(np.random.default_rng(0), WORLDS[world], spread, WEEKS_OF_TRUTH).max(axis=1)
    typical = float(np.median(largest))
    covered, widths = [], []
    for draw in range(draws):
        random = np.random.default_rng([draw, *world.encode(), round(100 * spread)])
        scale = random.uniform(5, 40)
        truth = whole_replicas(scale * typical)
        peaks = scale * week(random, WORLDS[world], spread, 1)[0]
        days = DayDemands(peaks, peaks / 2, lambda _day, _factor: 0)
        if error:
            peaks = peaks * TAIL.peak_factors(7, random) * np.exp(error / NORMAL_MEDIAN * random.normal())
            days = DayDemands(peaks / 2, peaks, lambda _day, _factor: 0, (TAIL,) * 7, error)
        found = day_interval(
            days,
            lambda demands: max(map(whole_replicas, demands)),
            draw,
        )
        assert found is not None
        point = whole_replicas(float(peaks.max()))
        low, high = min(found[0], point), max(found[1], point)
        covered.append(low <= truth <= high)
        widths.append((high - low) / truth)
    return float(np.mean(covered)), float(np.median(widths))


def test_nine_in_ten_intervals_hold_the_truth_and_are_narrow_enough_to_act_on() -> None:
    """Of the study's 200 draws a world (run as a module) 20 each: pooled, so that chance has little say."""
    found = [study(world, spread, 20) for world in WORLDS for spread in SPREADS]
    covered = float(np.mean([share for share, _width in found]))
    assert 0.85 <= covered <= 0.97, covered
    assert max(width for _share, width in found) <= 0.35


def test_so_do_those_of_weeks_planned_with_step_times_that_are_off() -> None:
    found = [study(world, spread, 20, 0.03) for world in WORLDS for spread in (0.05, 0.1)]
    covered = float(np.mean([share for share, _width in found]))
    assert 0.85 <= covered <= 0.97, covered
    assert max(width for _share, width in found) <= 0.35


@pytest.mark.soak
def test_the_whole_study() -> None:
    """200 draws a world, spread and error of step times (planner.md §4), pooled: nobody knows which a week has."""
    found = [study(world, spread, 200) for world in WORLDS for spread in SPREADS]
    found += [study(world, spread, 200, error) for world in WORLDS for spread in (0.05, 0.1) for error in (0.02, 0.03)]
    covered = float(np.mean([share for share, _width in found]))
    assert 0.85 <= covered <= 0.97, covered
    assert max(width for _share, width in found) <= 0.35


def test_the_tail_of_an_hour_is_found_again() -> None:
    random = np.random.default_rng(4)
    for shape in (-0.2, 0.0, 0.3):
        made = Tail(10.0, 2.0, shape, 180)
        seconds = np.concatenate([np.linspace(0, 10, 57_000), 10 + made.above(1 - random.random(3_000))])
        found = tail_of(random.permutation(seconds))
        assert found is not None
        assert found.shape == pytest.approx(shape, abs=0.08)
        assert found.scale == pytest.approx(2.0, rel=0.08)
        factors = found.peak_factors(2_000, random)
        assert np.median(factors) == pytest.approx(1.0, abs=0.01)
    assert tail_of(np.ones(3600)) is None
    assert tail_of(np.zeros(3600)) is None


@pytest.mark.parametrize("world", WORLDS)
def test_more_spread_is_more_doubt(world: str) -> None:
    widths = [study(world, spread, 20)[1] for spread in SPREADS]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


if __name__ == "__main__":
    for name in WORLDS:
        for level in SPREADS:
            share, width = study(name, level, 200)
            print(f"{name:<18} spread {level:.2f}: covers {share:.1%}, median width {width:.1%} of the need")
