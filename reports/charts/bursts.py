"""How bursty arrivals are: the busiest hour and minute, and dispersion by counting window."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import AMOUNT_LABEL, base, layered, seconds_axis, spec
from reports.marts import Marts, rows, some
from reports.printed import moment
from reports.theme import colour

HEIGHT_PX = 150
LEAST_POINTS = 2
DECADES = (0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000)
"""Ticks of the log axis of dispersion."""
SCALES = ((60, "hour", "minute", "%H:%M"), (1, "minute", "second", "%H:%M:%S"))
"""Step in seconds, the span that is shown, the step in words, and how its moments are printed on the axis."""


def peak_charts(marts: Marts, deployment_id: str, chart_id: str) -> tuple[Chart, ...]:
    """Arrivals of the busiest hour by minute and of the busiest minute by second; none without rows."""
    frame = some(marts, "mart_arrival_peaks", deployment_id=deployment_id)
    if frame is None:
        return ()
    charts = []
    for window_s, span, step, label in SCALES:
        data = frame.filter(pl.col("window_s") == window_s).sort("window_started_at")
        if data.is_empty():
            continue
        charts.append(Chart(
            chart_id=f"{chart_id}-{span}",
            title=f"The busiest {span}, {step} by {step}",
            note=f"From {moment(data['window_started_at'][0])}.",
            alt=f"{deployment_id}: requests that arrive in each {step} of the week's busiest {span}",
            source="mart_arrival_peaks",
            spec=_peak_spec(step, label),
            rows=data.select(at="window_started_at", requests="requests"),
            headings={"at": f"{step.capitalize()} from (UTC)", "requests": "Arrivals (requests)"},
        ))  # fmt: skip
    return tuple(charts)


def dispersion_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Variance over mean of the counts, by counting window, against 1 of a Poisson stream; None below two windows."""
    frame = rows(marts, "mart_arrivals", deployment_id=deployment_id).filter(pl.col("dispersion_factor") > 0)
    if frame.height < LEAST_POINTS:
        return None
    data = frame.sort("window_s").select(
        "window_s", dispersion="dispersion_factor", peak="peak_to_mean_factor",
        trusted=pl.when(pl.col("is_trusted").fill_null(value=True)).then(pl.lit("yes")).otherwise(pl.lit("no")),
        poisson=pl.lit(1.0),
    )  # fmt: skip
    return Chart(
        chart_id=chart_id,
        title="How much burstier than chance arrivals are, by how long one counts",
        note="Variance over mean of the counts. Dashes: 1, a Poisson stream. Grey: stamps too coarse to tell.",
        alt=f"{deployment_id}: dispersion of arrivals by counting window, log axes, against 1 of a Poisson stream",
        source="mart_arrivals",
        spec=_dispersion_spec(),
        rows=data,
        headings={"window_s": "Window (s)", "dispersion": "Dispersion (variance ÷ mean)", "peak": "Busiest ÷ mean",
                  "trusted": "Stamps fine enough", "poisson": "Poisson"},
    )  # fmt: skip


@cache
def _peak_spec(step: str, label: str) -> dict[str, Any]:
    at = alt.X("at", type="temporal").scale(type="utc").axis(format=label, tickCount=6).title(None)
    shown = [alt.Tooltip("at:T", title="from (UTC)", format=label), alt.Tooltip("requests:Q", format=",")]
    bars = base().mark_bar(width=4, color=colour("decode"))
    amount = alt.Y("requests", type="quantitative").axis(labelExpr=AMOUNT_LABEL, tickCount=5, tickMinStep=1)
    amount = amount.scale(zero=True).title(f"requests/{step}")
    return spec(layered(bars.encode(x=at, y=amount, tooltip=shown)), HEIGHT_PX)


@cache
def _dispersion_spec() -> dict[str, Any]:
    window = seconds_axis("window_s", "counting window, log axis")
    amount = alt.Y("dispersion", type="quantitative").scale(type="log")
    amount = amount.axis(labelExpr=AMOUNT_LABEL, values=list(DECADES)).title("variance ÷ mean, log axis")
    shade = alt.Color("trusted", type="nominal").scale(domain=["yes", "no"], range=[colour("decode"), colour("before")])
    shown = [
        alt.Tooltip("window_s:Q", title="window (s)", format=","),
        alt.Tooltip("dispersion:Q", format=",.3~r"),
        alt.Tooltip("peak:Q", title="busiest ÷ mean", format=",.3~r"),
    ]
    line = base().mark_line(color=colour("before"), strokeWidth=1).encode(x=window, y=amount)
    dots = base().mark_point(filled=True, opacity=1, size=70)
    chance = base().mark_line(strokeDash=[6, 4], color=colour("limit")).encode(x=window, y=alt.Y("poisson:Q"))
    return spec(
        layered(chance, line, dots.encode(x=window, y=amount, color=shade.legend(None), tooltip=shown)), HEIGHT_PX
    )
