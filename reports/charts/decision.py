"""GPUs needed, with their interval, against GPUs now: one line a deployment, all on one scale."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import base, layered, spec
from reports.printed import interval, whole
from reports.theme import colour

if TYPE_CHECKING:
    from collections.abc import Mapping

HEIGHT_PX = 34
LEAST_SCALE_GPUS = 5
"""Shortest scale, so that its ticks are whole GPUs."""
COLUMNS = ("now_gpus", "needed_gpus", "low_gpus", "high_gpus")


def decision_chart(decision: Mapping[str, Any], most_gpus: int, chart_id: str, role: str) -> Chart:
    """The line of one deployment; `most_gpus` ends the scale shared by all, `role` colours the need."""
    known = [name for name in COLUMNS if decision[name] is not None]
    ends = " of " + interval(decision["low_gpus"], decision["high_gpus"]) if "high_gpus" in known else ""
    return Chart(
        chart_id=chart_id,
        title="GPUs needed against GPUs now",
        note="",
        alt=f"{decision['deployment_id']}: {whole(decision['needed_gpus'])} GPUs needed{ends and ', interval' + ends}, "
        f"{whole(decision['now_gpus'])} now",
        source="mart_decision",
        spec=_spec(most_gpus, role),
        rows=pl.DataFrame([{name: decision[name] for name in COLUMNS}], schema=dict.fromkeys(COLUMNS, pl.Int64)),
        headings={
            "now_gpus": "Now (GPUs)",
            "needed_gpus": "Needed (GPUs)",
            "low_gpus": "Interval from (GPUs)",
            "high_gpus": "Interval to (GPUs)",
        },
    )


@cache
def _spec(most_gpus: int, role: str) -> dict[str, Any]:
    axis = alt.X("now_gpus", type="quantitative").scale(domain=[0, max(most_gpus, LEAST_SCALE_GPUS)], nice=True)
    ticks = axis.axis(tickCount=5, format="d", tickMinStep=1, grid=True).title("GPUs")
    over = alt.X("needed_gpus", type="quantitative")
    now = base().mark_bar(height=16, color=colour("before"), opacity=0.55).encode(x=ticks)
    ends = base().mark_rule(strokeWidth=3, color=colour(role)).encode(x=alt.X("low_gpus:Q"), x2="high_gpus")
    need = base().mark_tick(thickness=4, height=28, opacity=1, color=colour(role)).encode(x=over)
    known = ends.transform_filter("datum.high_gpus !== null"), need.transform_filter("datum.needed_gpus !== null")
    return spec(layered(now, *known), HEIGHT_PX)
