"""The curve of a sweep: one measure over the setting, its knee ringed, the first cut session marked."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, layered, spec
from reports.theme import colour

if TYPE_CHECKING:
    from collections.abc import Mapping

HEIGHT_PX = 150
LONG_FACTOR = 8
"""Largest over smallest value from which the axis is a log axis."""

MEASURES: Mapping[str, tuple[str, str, float]] = {
    "served_output_ratio": ("Output still made", "% of the week's output tokens", 100.0),
    "sessions_cut": ("Sessions cut", "sessions", 1.0),
    "attainment_ratio": ("Requests in objective", "% of the requests that arrive", 100.0),
    "ttft_p95_s": ("Time to first token, p95", "s", 1.0),
    "tpot_p95_s": ("Time per output token, p95", "ms", 1000.0),
    "needed_gpus": ("GPUs needed", "GPUs", 1.0),
}
"""Column of mart_scenarios -> title, unit of the axis, and what the unit prefix multiplies it by."""

HEADINGS = {
    "value": "Value of the setting",
    "amount": "Amount",
    "knee": "Knee",
    "cut": "First session cut",
}


def sweep_charts(frame: pl.DataFrame, setting: str, chart_id: str) -> tuple[Chart, ...]:
    """One chart for each measure that moves along the points of `frame` (one deployment, one swept setting)."""
    charts = []
    for name, (title, unit, size) in MEASURES.items():
        data = _points(frame, name, size)
        if data["amount"].n_unique() <= 1:
            continue
        low, high = float(frame["swept_value"].min()), float(frame["swept_value"].max())  # type: ignore[arg-type]
        is_log = low > 0 and high / low >= LONG_FACTOR
        judged = frame["curve_measure"][0] == name
        charts.append(
            Chart(
                f"{chart_id}-{name}",
                title,
                _note(frame, judged=judged),
                f"{title} over {setting}",
                "mart_scenarios",
                _spec(setting, unit, is_log=is_log, judged=judged),
                data,
                HEADINGS,
            )
        )
    return tuple(charts)


def _points(frame: pl.DataFrame, name: str, size: float) -> pl.DataFrame:
    return frame.select(
        pl.col("swept_value").alias("value"),
        (pl.col(name) * size).alias("amount"),
        pl.when(pl.col("is_knee")).then(pl.lit("knee")).alias("knee"),
        pl.when(pl.col("is_first_cut")).then(pl.lit("first session cut")).alias("cut"),
    )


def _note(frame: pl.DataFrame, *, judged: bool) -> str:
    words = []
    if judged and frame["is_knee"].any():
        words.append("Ringed: the knee.")
    if frame["is_first_cut"].any():
        words.append("Red dashes: the first session is cut.")
    return " ".join(words)


@cache
def _spec(setting: str, unit: str, *, is_log: bool, judged: bool) -> dict[str, Any]:
    axis = alt.X("value", type="quantitative").axis(format="~s" if not is_log else ",", tickCount=6).title(setting)
    across = axis.scale(type="log", base=2, nice=False) if is_log else axis.scale(zero=False, nice=False)
    up = amount_axis("amount", unit, zero=True)
    shown = [
        alt.Tooltip("value:Q", title=setting, format=","),
        alt.Tooltip("amount:Q", title=unit, format=",.4~g"),
    ]
    line = base().mark_line(color=colour("decode")).encode(x=across, y=up)
    dots = base().mark_point(filled=True, opacity=1, size=26, color=colour("decode"))
    layers = [line, dots.encode(x=across, y=up, tooltip=shown)]
    cut = base().transform_filter("isValid(datum.cut)")
    rule = cut.mark_rule(strokeDash=[6, 4], strokeWidth=1.4, color=colour("limit"))
    layers.append(rule.encode(x=across))
    if judged:
        ring = base().transform_filter("isValid(datum.knee)")
        layers.append(
            ring.mark_point(filled=False, size=170, strokeWidth=1.6, color=colour("ink")).encode(x=across, y=up)
        )
        label = ring.mark_text(align="left", dx=10, dy=13)
        layers.append(label.encode(x=across, y=up, text="knee:N"))
    return spec(layered(*layers), HEIGHT_PX)
