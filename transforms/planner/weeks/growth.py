"""Growth from the weeks so far: a straight line through the logarithms of what each asked for, and where it leads.

Source of the prediction interval: ordinary least squares, Student's t (Draper and Smith 1998, §1.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.provenance import MODELLED, weakest
from transforms.workload import week_start

if TYPE_CHECKING:
    from collections.abc import Mapping

FEWEST_WEEKS = 4
"""With fewer there is no growth to speak of."""

T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)
"""95 % quantile of Student's t for 1, 2, … degrees of freedom: a 90 % interval."""
NORMAL_95 = 1.645

DAY_S = 86_400.0


@dataclass(frozen=True)
class Growth:
    """Growth per week of ln(work), and what an interval of it is made from."""

    per_week: float
    spread: float
    """Standard deviation of the weeks about the line."""
    weeks: int
    centre: float
    """Mean of the weeks, counted back from the latest (0)."""
    squares: float
    """Sum of squares about it."""
    latest_off: float
    """Line less latest week: the week's own accident, which the next one does not repeat."""

    def factor(self, weeks_ahead: float) -> tuple[float, float, float]:
        """What the latest week is multiplied by so many weeks on: as the line says, and the 90 % interval's ends."""
        far = 1 + 1 / self.weeks + (weeks_ahead - self.centre) ** 2 / self.squares
        freedom = self.weeks - 2
        student = T_95[freedom - 1] if freedom <= len(T_95) else NORMAL_95
        half = student * self.spread * math.sqrt(far)
        middle = self.latest_off + self.per_week * weeks_ahead
        return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


@dataclass(frozen=True)
class Outlook:
    """What a forecast starts from: GPUs asked for now (not rounded), GPUs there are, and how far to look."""

    week: str
    demand_gpus: float
    now_gpus: int
    horizon_weeks: int
    lead_time_days: int
    provenance: str


def growth_of(work_per_s: Mapping[str, float]) -> Growth | None:
    """Growth through the work of each week (ISO week → any measure per covered second); None with under 4 weeks."""
    known = {week: work for week, work in work_per_s.items() if work > 0}
    if len(known) < FEWEST_WEEKS:
        return None
    days = np.array([week_start(week).toordinal() for week in known], dtype=np.float64)
    at = (days - days.max()) / 7
    logs = np.log(np.array(list(known.values())))
    centre = float(at.mean())
    squares = float(((at - centre) ** 2).sum())
    slope = float(((at - centre) * (logs - logs.mean())).sum()) / squares
    off = logs - logs.mean() - slope * (at - centre)
    return Growth(
        per_week=slope,
        spread=math.sqrt(float((off**2).sum()) / (len(known) - 2)),
        weeks=len(known),
        centre=centre,
        squares=squares,
        latest_off=-float(off[at.argmax()]),
    )


def forecast_rows(growth: Growth | None, outlook: Outlook) -> list[dict[str, Any]]:
    """Rows of plan_forecasts, one a week ahead; none where growth is not known or nothing is asked for."""
    if growth is None or outlook.demand_gpus <= 0:
        return []
    run_out = run_out_date(growth, outlook)
    order_by = None if run_out is None else run_out - timedelta(days=outlook.lead_time_days)
    return [
        {
            "horizon_week": week_after(outlook.week, ahead),
            "measure": "gpus",
            **dict(
                zip(
                    ("value_gpus", "low_gpus", "high_gpus"),
                    (outlook.demand_gpus * factor for factor in growth.factor(ahead)),
                    strict=True,
                )
            ),
            "run_out_date": run_out,
            "order_by_date": order_by,
            "provenance": weakest(MODELLED, outlook.provenance),
        }
        for ahead in range(1, outlook.horizon_weeks + 1)
    ]


def run_out_date(growth: Growth, outlook: Outlook) -> date | None:
    """First day on which today's GPUs no longer suffice; None where none is within the horizon."""
    monday = week_start(outlook.week).date()
    if outlook.demand_gpus > outlook.now_gpus:
        return monday
    if growth.per_week <= 0:
        return None
    ahead = (math.log(outlook.now_gpus / outlook.demand_gpus) - growth.latest_off) / growth.per_week
    return monday + timedelta(days=max(math.ceil(7 * ahead), 0)) if ahead <= outlook.horizon_weeks else None


def week_after(week: str, ahead: int) -> str:
    """ISO week so many weeks after `week`."""
    year, number, _day = (week_start(week) + timedelta(weeks=ahead)).isocalendar()
    return f"{year}-W{number:02d}"
