"""KV·time: who holds the cache for how long, by deployment and by tenant."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import AMOUNT_LABEL, base, labelled, phase_colour, spec
from reports.marts import ALL, Marts, rows
from reports.printed import gib_column
from reports.theme import PHASE_LABELS, PHASES

MOST_BARS = 12
SHORT_BARS = 6
"""Most bars that take no more height than the chart beside them."""
NOBODY = "(none)"
"""Tenant of rows that name none."""
BAR_PX = 24
HEADINGS = {"phase": "Phase", "gib_s": "KV·time (GiB·s)", "share": "Share of the deployment", "attempts": "Attempts"}


def tenant_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """KV·time of the tenants that hold the most, stacked by phase; None where the log names no tenant."""
    frame = rows(marts, "mart_kv_time", deployment_id=deployment_id).filter(pl.col("tenant") != ALL)
    if frame["tenant"].unique().to_list() == [NOBODY]:
        return None
    return _bars(
        frame, "tenant", chart_id,
        title="Which tenants hold the KV cache, and in which phase",
        what=f"{deployment_id}: KV·time in GiB·s by tenant and phase",
    )  # fmt: skip


def deployment_chart(marts: Marts, chart_id: str) -> Chart | None:
    """KV·time of every deployment, stacked by phase; None without rows."""
    frame = rows(marts, "mart_kv_time", tenant=ALL).filter(pl.col("deployment_id") != ALL)
    return _bars(
        frame, "deployment_id", chart_id,
        title="Which deployments hold KV, and in which phase",
        what="KV·time in GiB·s by deployment and phase",
    )  # fmt: skip


def _bars(frame: pl.DataFrame, holder: str, chart_id: str, title: str, what: str) -> Chart | None:
    totals = frame.filter(pl.col("phase") == ALL).sort("kv_time_byte_s", descending=True, nulls_last=True)
    if totals.is_empty():
        return None
    largest = totals.head(MOST_BARS)
    data = (
        frame.filter(pl.col("phase") != ALL)
        .join(largest.select(holder, rank=pl.int_range(pl.len())), on=holder, how="inner")
        .sort("rank", "phase")
        .select(
            pl.col(holder).alias("holder"),
            pl.col("phase").replace(dict(PHASE_LABELS)),
            gib_column("kv_time_byte_s", "gib_s"),
            pl.col("share_ratio").alias("share"),
            pl.col("attempts_requests").alias("attempts"),
        )
    )
    more = f"The {MOST_BARS} largest of {totals.height}. " if totals.height > MOST_BARS else ""
    if (data["phase"] == PHASE_LABELS["tool_wait"]).any():
        more += (
            "Pinned waits: modelled, what contexts would hold if the engine kept them through tool waits; "
            "no part of the KV·time held."
        )
    return Chart(
        chart_id=chart_id,
        title=title,
        note=more,
        alt=f"{what}; most: {largest[holder][0]}",
        source=labelled("mart_kv_time", frame),
        spec=_spec(BAR_PX * largest.height + 10),
        rows=data,
        is_tall=holder == "tenant" and largest.height > SHORT_BARS,
        headings={"holder": holder.removesuffix("_id").capitalize(), **HEADINGS},
    )


@cache
def _spec(height_px: int) -> dict[str, Any]:
    labels = [PHASE_LABELS[phase] for phase in PHASES]
    amount = alt.X("gib_s", type="quantitative").stack("zero").axis(labelExpr=AMOUNT_LABEL, tickCount=5, grid=True)
    bars = (
        base()
        .transform_calculate(rank=f"indexof({labels}, datum.phase)")
        .mark_bar(height=BAR_PX - 8)
        .encode(
            x=amount.title("GiB·s"),
            y=alt.Y("holder", type="nominal").sort(None).axis(labelLimit=170, domain=False, ticks=False).title(None),
            color=phase_colour().legend(columnPadding=4, symbolSize=60),
            order=alt.Order("rank", type="ordinal"),
            tooltip=[
                alt.Tooltip("holder:N", title=" "),
                alt.Tooltip("phase:N"),
                alt.Tooltip("gib_s:Q", title="GiB·s", format=",.3~s"),
                alt.Tooltip("share:Q", title="share", format=".1%"),
            ],
        )
    )
    return spec(bars, height_px)
