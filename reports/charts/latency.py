"""Latency quantiles beside the objective: queue, prefill, TTFT, TPOT and E2E on one log axis."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import base, layered, seconds_axis, spec
from reports.latency_table import ANSWERED, EVERY, KINDS, MODELLED, QUANTILES, latency_rows
from reports.theme import colour
from reports.words import measure_word

if TYPE_CHECKING:
    from reports.marts import Marts

ROLES = {ANSWERED: "decode", EVERY: "prefill", MODELLED: "before"}
LINE_PX = 15
GAP_PX = 14
"""Between two measures."""
SIZES = {"p50": 30, "p90": 30, "p95": 110, "p99": 30}
"""Area of each quantile's dot; the one that objectives are about is the large one."""
HEADINGS = {
    "measure": "Measure",
    "kind": "Of the requests",
    **{f"latency_{name}_s": f"{name} (s)" for name in QUANTILES},
    "slo_s": "Objective for p95 (s)",
}


def latency_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """A group of lines a measure, one a kind of request, p50 to p99, with the objective; None without times."""
    frame = latency_rows(marts, deployment_id).filter(pl.col("latency_p50_s") >= 0)
    data = frame.select(pl.col("measure").map_elements(measure_word, return_dtype=pl.String), *list(HEADINGS)[1:])
    times = [name for name in HEADINGS if name.endswith("_s")]
    drawn = tuple(name for name in times if (data[name] > 0).any())
    if not drawn:
        return None
    kinds = tuple(kind for kind in KINDS if (data["kind"] == kind).any())
    return Chart(
        chart_id=chart_id,
        title="Latency that users felt, against the objective",
        note="Dots: p50, p90, p95 (large) and p99. Red stroke: objective for the p95."
        + (" All: where a dot lacks, that quantile is a failure." if EVERY in kinds else "")
        + (" Modelled: the week's hardest window on today's fleet." if MODELLED in kinds else ""),
        alt=f"{deployment_id}: quantiles of queue, prefill, TTFT, TPOT and E2E in seconds on a log axis, "
        + "; ".join(kinds),
        source="mart_latency",
        spec=_spec(data["measure"].n_unique(), kinds, drawn),
        rows=data,
        headings=HEADINGS,
    )


@cache
def _spec(measures: int, kinds: tuple[str, ...], drawn: tuple[str, ...]) -> dict[str, Any]:
    """Lines, dots and strokes of the columns in `drawn`; a log axis has no place for zero."""
    axis = alt.Axis(domain=False, ticks=False, labelLimit=120)
    place: dict[str, Any] = {
        "y": alt.Y("measure", type="nominal").sort(None).axis(axis).title(None),
        "color": alt.Color("kind", type="nominal")
        .scale(domain=list(kinds), range=[colour(ROLES[kind]) for kind in kinds])
        .legend(columns=alt.ExprRef("width < 400 ? 1 : 3"))
        .title(None),
        "tooltip": [
            alt.Tooltip("measure:N", title=" "),
            alt.Tooltip("kind:N", title="of"),
            *(alt.Tooltip(name, type="quantitative", title=HEADINGS[name], format=",.3~g") for name in drawn),
        ],
    }
    beside = alt.YOffset("kind", type="nominal").scale(domain=list(kinds), paddingOuter=0.3)
    layers = []
    if "latency_p50_s" in drawn:
        span = base().transform_filter("datum.latency_p50_s > 0").mark_rule(strokeWidth=1.5)
        ends = f"latency_{_longest(drawn)}_s"
        layers.append(span.encode(x=seconds_axis("latency_p50_s", "time, log axis"), x2=ends, yOffset=beside, **place))
    for name in drawn:
        known = base().transform_filter(f"datum.{name} > 0")
        x = seconds_axis(name, "time, log axis")
        if name == "slo_s":
            stroke = known.mark_tick(thickness=3, size=LINE_PX * len(kinds), color=colour("limit"), opacity=1)
            layers.append(stroke.encode(x=x, y=place["y"], tooltip=place["tooltip"]))
        else:
            dots = known.mark_point(filled=True, opacity=1, size=SIZES[name.split("_")[1]])
            layers.append(dots.encode(x=x, yOffset=beside, **place))
    return spec(layered(*layers), measures * (LINE_PX * len(kinds) + GAP_PX))


def _longest(drawn: tuple[str, ...]) -> str:
    return next(name for name in reversed(QUANTILES) if f"latency_{name}_s" in drawn)
