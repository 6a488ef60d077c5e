"""Arrivals: the rate over the week, and the weekly rhythm beside last week's."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, is_long, layered, reading, spec, time_axis
from reports.marts import Marts, rows
from reports.theme import colour

THIS, LAST = "this week", "week before"
HEIGHT_PX = 150
LEAST_HOURS = 24
"""Fewest hours that make a rhythm."""


def rate_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Arrivals per second and requests in flight, means of five minutes; None without rows."""
    frame = rows(marts, "mart_arrival_windows", deployment_id=deployment_id).sort("window_started_at")
    if frame.is_empty():
        return None
    data = frame.select(
        at="window_started_at", rate="arrivals_requests_per_s", flight="concurrency_mean_requests",
        requests="requests",
    )  # fmt: skip
    return Chart(
        chart_id=chart_id,
        title="How fast requests arrive over the week",
        note="Means of five minutes.",
        alt=f"{deployment_id}: arrivals in requests per second over the week",
        source="mart_arrival_windows",
        spec=_rate_spec(has_days=is_long(data)),
        rows=data,
        headings={"at": "Five minutes from (UTC)", "rate": "Arrivals (requests/s)",
                  "flight": "In flight (requests)", "requests": "Arrivals (requests)"},
    )  # fmt: skip


def rhythm_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Requests in each hour of the week, this week and the one before; None for less than a day."""
    frame = rows(marts, "mart_hours", deployment_id=deployment_id).sort("hour_of_week")
    if frame.height < LEAST_HOURS:
        return None
    data = frame.select("hour_of_week", "requests", previous="previous_requests")
    return Chart(
        chart_id=chart_id,
        title="The week's rhythm, over the week before",
        note="Requests in each hour of the week.",
        alt=f"{deployment_id}: requests in each hour of the week, this week over the one before",
        source="mart_hours",
        spec=_rhythm_spec(),
        rows=data,
        headings={"hour_of_week": "Hour of the week (0 is Monday 00:00)", "requests": "This week (requests)",
                  "previous": "Week before (requests)"},
    )  # fmt: skip


@cache
def _rate_spec(*, has_days: bool) -> dict[str, Any]:
    at = time_axis(has_days=has_days)
    line = base().mark_line(strokeWidth=1.2, color=colour("decode"), interpolate="step-after")
    shown = [
        alt.Tooltip("at:T", title="from (UTC)", format="%a %-d %b %H:%M"),
        alt.Tooltip("rate:Q", title="requests/s", format=",.3~f"),
        alt.Tooltip("flight:Q", title="in flight", format=",.1f"),
    ]
    return spec(
        layered(line.encode(x=at, y=amount_axis("rate", "requests/s", zero=True)), reading(at, shown)), HEIGHT_PX
    )


@cache
def _rhythm_spec() -> dict[str, Any]:
    hours = (
        alt.X("hour_of_week", type="quantitative")
        .scale(domain=[0, 168], nice=False)
        .axis(values=list(range(0, 168, 24)), labelAlign="left",
              labelExpr="['Mon','Tue','Wed','Thu','Fri','Sat','Sun'][datum.value / 24]")
        .title(None)
    )  # fmt: skip
    week = alt.Color("week", type="nominal").scale(domain=[THIS, LAST], range=[colour("decode"), colour("before")])
    week = week.legend(symbolType="stroke").title(None)
    line = (
        base()
        .transform_calculate(**{THIS: "datum.requests", LAST: "datum.previous"})
        .transform_fold([LAST, THIS], as_=["week", "count"])
        .transform_filter("datum.count !== null")
        .mark_line(strokeWidth=1.3, interpolate="step-after")
        .encode(x=hours, y=amount_axis("count", "requests/h", zero=True), color=week)
    )
    shown = [alt.Tooltip("requests:Q", title=THIS, format=","), alt.Tooltip("previous:Q", title=LAST, format=",")]
    return spec(layered(line, reading(hours, shown, width_px=5)), HEIGHT_PX)
