"""Weeks beside each other: what moved KV·time and GPUs since the last one, and the forecast against the fact."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import AMOUNT_LABEL, base, labelled, layered, spec
from reports.marts import Marts, only, some
from reports.printed import gib_column
from reports.theme import colour
from reports.words import mover_word

if TYPE_CHECKING:
    from collections.abc import Mapping

BAR_PX = 26
HEIGHT_PX = 170
LEAST_WEEKS = 2
"""Fewest weeks that make a line."""
PARTS: Mapping[str, tuple[str, str]] = {
    "gpus": ("GPUs", "How many GPUs each mover added or took since last week"),
    "gib_s": ("GiB·s", "How much KV·time each mover added or took since last week"),
}
"""Column of the chart -> its unit and title."""


def mover_charts(marts: Marts, deployment_id: str, chart_id: str) -> tuple[Chart, ...]:
    """Signed bars of the parts of the change, GPUs and KV·time apart; none without an earlier week."""
    frame = some(marts, "mart_week_changes", deployment_id=deployment_id)
    if frame is None:
        return ()
    data = frame.select(
        pl.col("mover").map_elements(mover_word, return_dtype=pl.String),
        pl.col("demand_part_gpus").alias("gpus"),
        gib_column("kv_time_part_byte_s", "gib_s"),
    )
    before = frame["previous_week"][0]
    return tuple(
        Chart(
            chart_id=f"{chart_id}-{field}",
            title=title,
            note=f"Parts of the change since {before}; they add up to it, the residual is what the others leave over.",
            alt=f"{deployment_id}: change since {before} in {unit}, by what moved",
            source=labelled("mart_week_changes", frame),
            spec=_mover_spec(field, unit, data.height),
            rows=data.sort(pl.col(field).abs(), descending=True, nulls_last=True),
            headings={"mover": "Mover", "gpus": "Part of the change (GPUs)", "gib_s": "Part of the change (GiB·s)"},
        )
        for field, (unit, title) in PARTS.items()
        if (data[field].fill_null(0.0) != 0.0).any()
    )


def forecast_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """GPUs forecast week by week with their interval, what the weeks then asked for, and GPUs now; None without."""
    frame = some(marts, "mart_forecasts", deployment_id=deployment_id)
    if frame is None or frame.height < LEAST_WEEKS:
        return None
    now = only(marts, "mart_decision", deployment_id=deployment_id)["now_gpus"]
    data = frame.sort("horizon_week").select(
        week="horizon_week", forecast="value_gpus", low="low_gpus", high="high_gpus", fact="fact_gpus",
    ).with_columns(pl.lit(now, pl.Int64).alias("now"))  # fmt: skip
    return Chart(
        chart_id=chart_id,
        title="GPUs that the coming weeks ask for, against the GPUs now",
        note="Band: 90 % interval of the forecast. Dots: what a week then asked for. Red dashes: GPUs now.",
        alt=f"{deployment_id}: forecast of GPUs by week with a 90 % interval, against {now} now",
        source=labelled("mart_forecasts", frame),
        spec=_forecast_spec(),
        rows=data,
        headings={"week": "Week", "forecast": "Forecast (GPUs)", "low": "From (GPUs)", "high": "To (GPUs)",
                  "fact": "Fact (GPUs)", "now": "Now (GPUs)"},
    )  # fmt: skip


@cache
def _mover_spec(field: str, unit: str, bars: int) -> dict[str, Any]:
    amount = alt.X(field, type="quantitative").axis(tickCount=5, grid=True, labelExpr=AMOUNT_LABEL).title(unit)
    shade = alt.condition(f"datum.{field} < 0", alt.value(colour("release")), alt.value(colour("add")))
    drawn = base().mark_bar(height=BAR_PX - 10).encode(
        x=amount,
        y=alt.Y("mover", type="nominal").sort(None).axis(labelLimit=170, domain=False, ticks=False).title(None),
        color=shade,
        tooltip=[alt.Tooltip("mover:N", title=" "), alt.Tooltip(f"{field}:Q", title=unit, format="+,.3~s")],
    )  # fmt: skip
    return spec(layered(drawn), BAR_PX * bars)


@cache
def _forecast_spec() -> dict[str, Any]:
    week = alt.X("week", type="ordinal").axis(labelAngle=0).title(None)
    amount = alt.Y("forecast", type="quantitative").scale(zero=True).axis(tickCount=5).title("GPUs")
    shown = [
        alt.Tooltip("week:N"),
        *(alt.Tooltip(f"{name}:Q", format=",.1f") for name in ("forecast", "low", "high", "fact")),
    ]
    band = base().mark_area(opacity=0.25, color=colour("need")).encode(x=week, y=alt.Y("low:Q"), y2="high")
    line = base().mark_line(color=colour("need"), point={"color": colour("need")})
    line = line.encode(x=week, y=amount, tooltip=shown)
    fact = base().mark_point(filled=True, size=60, opacity=1, color=colour("ink"))
    fact = fact.transform_filter("datum.fact !== null").encode(x=week, y=alt.Y("fact:Q"), tooltip=shown)
    now = base().mark_line(strokeDash=[6, 4], strokeWidth=1.6, color=colour("limit")).encode(x=week, y=alt.Y("now:Q"))
    return spec(layered(band, now, line, fact), HEIGHT_PX)
