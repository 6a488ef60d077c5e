"""Growth through the weeks: the line, its interval, the day GPUs run out, and silence with too few weeks."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest

from transforms.planner.weeks.growth import Outlook, forecast_rows, growth_of, run_out_date, week_after

LAST = "2026-W47"


def weeks(count: int, per_week: float, noise: float = 0.0, seed: int = 1) -> dict[str, float]:
    """Work of the `count` weeks up to LAST, growing by `per_week` a week."""
    random = np.random.default_rng(seed)
    return {
        week_after(LAST, -back): 1000 * math.exp(-per_week * back + noise * float(random.normal()))
        for back in reversed(range(count))
    }


def outlook(demand_gpus: float = 4.0, now_gpus: int = 8) -> Outlook:
    return Outlook(LAST, demand_gpus, now_gpus, horizon_weeks=8, lead_time_days=30, provenance="calibrated")


def test_fewer_than_four_weeks_have_no_growth() -> None:
    assert growth_of(weeks(3, 0.1)) is None
    assert growth_of(weeks(5, 0.1) | {week_after(LAST, -1): 0.0, week_after(LAST, -2): 0.0}) is None
    assert forecast_rows(None, outlook()) == []
    assert forecast_rows(growth_of(weeks(6, 0.1)), outlook(0.0)) == []


def test_steady_growth_is_found_and_dated() -> None:
    growth = growth_of(weeks(6, math.log(1.1)))
    assert growth is not None
    assert growth.factor(3) == (pytest.approx(1.1**3),) * 3
    rows = forecast_rows(growth, outlook())
    assert [row["horizon_week"] for row in rows][:2] == ["2026-W48", "2026-W49"]
    assert len(rows) == 8
    assert rows[-1]["value_gpus"] == pytest.approx(4 * 1.1**8)
    ahead = math.ceil(7 * math.log(2) / math.log(1.1) - 1e-9)  # days until 4 GPUs have become 8
    assert rows[0]["run_out_date"] == date.fromordinal(date(2026, 11, 16).toordinal() + ahead)
    assert (rows[0]["run_out_date"] - rows[0]["order_by_date"]).days == 30
    assert rows[0]["provenance"] == "modelled"


def test_a_missing_week_leaves_a_gap_not_a_step() -> None:
    known = weeks(7, 0.05)
    del known[week_after(LAST, -3)]
    growth = growth_of(known)
    assert growth is not None
    assert growth.per_week == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("per_week", "demand_gpus", "wanted"),
    [(0.0, 4.0, None), (-0.1, 4.0, None), (0.01, 4.0, None), (-0.1, 9.0, date(2026, 11, 16))],
)
def test_gpus_run_out_only_within_the_horizon(per_week: float, demand_gpus: float, wanted: date | None) -> None:
    growth = growth_of(weeks(8, per_week))
    assert growth is not None
    assert run_out_date(growth, outlook(demand_gpus)) == wanted


@pytest.mark.parametrize("count", [4, 6, 12])
def test_nine_in_ten_intervals_hold_the_week_that_comes(count: int) -> None:
    """400 histories of noisy growth: the next week, noise and all, lies in the 90 % interval in 86 to 94 of 100."""
    held = 0
    random = np.random.default_rng(7)
    for seed in range(400):
        known = weeks(count, 0.05, noise=0.1, seed=seed)
        growth = growth_of(known)
        assert growth is not None
        _middle, low, high = growth.factor(1)
        held += low <= 1000 * math.exp(0.05 + 0.1 * float(random.normal())) / known[LAST] <= high
    assert 0.86 <= held / 400 <= 0.94
