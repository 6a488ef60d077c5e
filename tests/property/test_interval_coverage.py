"""The study behind the 90 % interval: seeded weeks whose true need is known, 5 to 40 replicas."""

from __future__ import annotations

import numpy as np
import pytest

from transforms.planner.sizing.gpus import whole_replicas
from transforms.planner.sizing.interval import DayDemands, day_interval

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


def study(world: str, spread: float, draws: int) -> tuple[float, float]:
    """Share of weeks whose interval holds the true need, and the median width over the need.

    The true need is what the median week of that world needs. One week of it is seen, and counted from.
    """
    largest = week(np.random.default_rng(0), WORLDS[world], spread, WEEKS_OF_TRUTH).max(axis=1)
    typical = float(np.median(largest))
    covered, widths = [], []
    for draw in range(draws):
        random = np.random.default_rng([draw, *world.encode(), round(100 * spread)])
        scale = random.uniform(5, 40)
        truth = whole_replicas(scale * typical)
        peaks = scale * week(random, WORLDS[world], spread, 1)[0]
        found = day_interval(
            DayDemands(peaks, peaks / 2, lambda _day, _factor: 0),
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
