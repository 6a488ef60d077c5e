"""Latency quantiles beside the objective: queue, TTFT, TPOT and E2E on one log axis."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import base, layered, seconds_axis, spec
from reports.marts import Marts, rows
from reports.theme import colour

MEASURES = {"queue": "queue", "ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
QUANTILES = {
    "latency_p50_s": "p50",
    "latency_p90_s": "p90",
    "latency_p95_s": "p95",
    "latency_p99_s": "p99",
    "latency_all_p95_s": "p95 with failures as misses",
    "slo_s": "objective for p95",
}
LINE_PX = 34


def latency_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """One line a measure with its p50 to p99, the p95 over all requests and the objective; None without times."""
    frame = rows(marts, "mart_latency", deployment_id=deployment_id).filter(pl.col("latency_p99_s") > 0)
    if frame.is_empty():
        return None
    order = list(MEASURES)
    data = (
        frame.with_columns(
            (pl.col("measure").replace(MEASURES) + pl.when(pl.col("source") == "modelled").then(
                pl.lit(" (modelled)")).otherwise(pl.lit(""))).alias("line"),
            pl.col("measure").replace_strict({name: n for n, name in enumerate(order)}, default=9).alias("rank"),
        )
        .sort("rank", "source")
        .select("line", *QUANTILES)
    )  # fmt: skip
    return Chart(
        chart_id=chart_id,
        title="Latency that users felt, against the objective",
        note="Dots: p50, p90, p95 (large) and p99 of successful requests. Ring: p95 with failures counted as misses. "
        "Red stroke: objective for the p95.",
        alt=f"{deployment_id}: latency quantiles of queue, TTFT, TPOT and E2E in seconds on a log axis",
        source="mart_latency",
        spec=_spec(LINE_PX * data.height, tuple(name for name in QUANTILES if (data[name] > 0).any())),
        rows=data,
        headings={"line": "Measure", **{name: f"{label} (s)" for name, label in QUANTILES.items()}},
    )


@cache
def _spec(height_px: int, present: tuple[str, ...]) -> dict[str, Any]:
    """Dots, ring and stroke of each quantile in `present`; a log axis has no place for zero."""
    line = alt.Y("line", type="nominal").sort(None).axis(domain=False, ticks=False, labelLimit=120).title(None)
    shown = [alt.Tooltip("line:N", title=" ")] + [
        alt.Tooltip(name, type="quantitative", title=f"{label} (s)", format=",.3~g")
        for name, label in QUANTILES.items()
    ]
    marks = {
        "latency_p50_s": base().mark_point(filled=True, size=45, color=colour("decode")),
        "latency_p90_s": base().mark_point(filled=True, size=45, color=colour("decode")),
        "latency_p95_s": base().mark_point(filled=True, size=130, color=colour("decode")),
        "latency_p99_s": base().mark_point(filled=True, size=45, color=colour("decode")),
        "latency_all_p95_s": base().mark_point(filled=False, size=230, strokeWidth=1.5, color=colour("ink")),
        "slo_s": base().mark_tick(thickness=3, height=26, color=colour("limit")),
    }
    layers = [
        marks[name]
        .transform_filter(f"datum.{name} > 0")
        .encode(x=seconds_axis(name, "time, log axis"), y=line, opacity=alt.value(1), tooltip=shown)
        for name in present
    ]
    if "latency_p50_s" in present:
        span = base().transform_filter("datum.latency_p50_s > 0").mark_rule(strokeWidth=2, color=colour("before"))
        ends = seconds_axis("latency_p50_s", "time, log axis")
        layers.insert(0, span.encode(x=ends, x2="latency_p99_s", y=line, tooltip=shown))
    return spec(layered(*layers), height_px)
