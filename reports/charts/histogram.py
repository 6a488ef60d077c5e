"""Histograms over log2 bins: lengths in tokens, this week over the one before, and gaps in seconds by kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import TOKENS_LABEL, base, layered, seconds_axis, spec
from reports.marts import Marts, rows, some
from reports.printed import percent, seconds
from reports.theme import colour

THIS, LAST = "this week", "week before"
LEAST_TOKENS = 0.5
"""Where the bin of empty prompts starts on a log axis."""
LEAST_S = 0.5
"""Where the bin of gaps under a second starts on a log axis."""
HEIGHT_PX = 150


def length_chart(marts: Marts, deployment_id: str, measure: str, chart_id: str) -> Chart | None:
    """Share of requests by prompt or output length, this week as bars and the week before as a line; None if empty."""
    frame = rows(marts, "mart_length_histogram", deployment_id=deployment_id, measure=measure)
    if frame.is_empty():
        return None
    data = frame.sort("bin_low_tokens").select(
        pl.max_horizontal(pl.col("bin_low_tokens"), pl.lit(LEAST_TOKENS)).alias("low"),
        pl.col("bin_high_tokens").alias("high"),
        pl.col("share_ratio").alias("share"),
        pl.col("previous_share_ratio").alias("previous"),
        pl.col("censored_share_ratio").alias("cut"),
        "requests",
        pl.col("censored_requests").alias("cut_requests"),
        "previous_requests",
    )
    has_before = bool(data["previous"].is_not_null().any())
    return Chart(
        chart_id=chart_id,
        title=f"How long {measure}s are",
        note="Share of requests in bins that double"
        + ("; strokes are the week before." if has_before else "; there is no week before.")
        + _cut_words(frame),
        alt=f"{deployment_id}: share of requests by {measure} length in tokens, on a log axis",
        source="mart_length_histogram",
        spec=_length_spec(has_before=has_before, has_cut=bool((data["cut"] > 0).any())),
        rows=data,
        headings={"low": "From (tokens)", "high": "Below (tokens)", "share": "This week (share)",
                  "previous": "Week before (share)", "cut": "Of it cut (share)", "requests": "This week (requests)",
                  "cut_requests": "Of it cut (requests)", "previous_requests": "Week before (requests)"},
    )  # fmt: skip


def _cut_words(frame: pl.DataFrame) -> str:
    """Words on outputs that were cut before their own end; empty for prompts."""
    cut: Any = frame["censored_ratio"].drop_nulls().first()
    if cut is None:
        return ""
    return (
        f" Orange: cut by max_tokens, max_model_len or a failure, {percent(cut)} of all outputs: at least so long."
        if cut
        else " No output was cut."
    )


def wait_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Gaps inside sessions by length, tool waits and user think time apart; None without rows."""
    frame = rows(marts, "mart_tool_wait_histogram", deployment_id=deployment_id)
    if frame.is_empty():
        return None
    policies = some(marts, "mart_tool_wait_policies", deployment_id=deployment_id)
    break_even_s: Any = None if policies is None else policies["break_even_s"].drop_nulls().first()
    data = frame.sort("kind", "bin_low_s").select(
        pl.col("kind").replace({"tool": "tool wait", "user": "user think time"}),
        pl.max_horizontal(pl.col("bin_low_s"), pl.lit(LEAST_S)).alias("low"),
        pl.col("bin_high_s").alias("high"),
        pl.col("share_ratio").alias("share"),
        pl.col("waits_requests").alias("gaps"),
        pl.lit(break_even_s, pl.Float64).alias("even"),
    )
    return Chart(
        chart_id=chart_id,
        title="How long sessions wait for tools, and for their users",
        note="Share of gaps in bins that double, each kind apart."
        + (
            ""
            if break_even_s is None
            else f" Red dashes: {seconds(break_even_s)}, from which computing the median context anew is cheaper than "
            "holding it on a full pool."
        ),
        alt=f"{deployment_id}: gaps between the turns of a session by length, tool waits and user think time",
        source="mart_tool_wait_histogram",
        spec=_wait_spec(has_even=break_even_s is not None),
        rows=data,
        headings={
            "kind": "Kind",
            "low": "From (s)",
            "high": "Below (s)",
            "share": "Share",
            "gaps": "Gaps",
            "even": "Break-even (s)",
        },
    )


@cache
def _length_spec(*, has_before: bool, has_cut: bool) -> dict[str, Any]:
    ends = alt.X("low", type="quantitative").scale(type="log", base=2, nice=False)
    ends = ends.axis(labelExpr=TOKENS_LABEL, tickCount=8).title("tokens")
    share = alt.Y("share", type="quantitative").axis(format="%", tickCount=4).title("of requests")
    shown = [
        alt.Tooltip("low:Q", title="from (tokens)", format=","),
        alt.Tooltip("high:Q", title="below (tokens)", format=","),
        alt.Tooltip("share:Q", title=THIS, format=".1%"),
        alt.Tooltip("previous:Q", title=LAST, format=".1%"),
    ]
    if has_cut:
        shown.append(alt.Tooltip("cut:Q", title="of it cut", format=".2%"))
    bars = base().mark_rect(color=colour("decode"), opacity=0.85, stroke=colour("paper"), strokeWidth=1)
    before = base().mark_rule(strokeWidth=2.5, color=colour("ink"))
    layers = [bars.encode(x=ends, x2="high", y=share, y2=alt.datum(0), tooltip=shown)]
    if has_cut:
        cut = base().transform_filter("datum.cut > 0").mark_rect(color=colour("prefill"), stroke=colour("paper"))
        layers.append(cut.encode(x=ends, x2="high", y=alt.Y("cut:Q"), y2=alt.datum(0), tooltip=shown))
    if has_before:
        layers.append(before.encode(x=alt.X("low:Q"), x2="high", y=alt.Y("previous:Q"), tooltip=shown))
    return spec(layered(*layers), HEIGHT_PX)


@cache
def _wait_spec(*, has_even: bool) -> dict[str, Any]:
    kinds = alt.Color("kind", type="nominal").scale(
        domain=["tool wait", "user think time"], range=[colour("wait"), colour("before")]
    )  # fmt: skip
    bars = base().mark_rect(opacity=0.65).encode(
        x=seconds_axis("low", "gap", nice=False),
        x2="high",
        y=alt.Y("share", type="quantitative").axis(format="%", tickCount=4).title("of the gaps of its kind"),
        y2=alt.datum(0),
        color=kinds.title(None),
        tooltip=[
            alt.Tooltip("kind:N"),
            alt.Tooltip("low:Q", title="from (s)", format=",.3~g"),
            alt.Tooltip("high:Q", title="below (s)", format=",.3~g"),
            alt.Tooltip("gaps:Q", format=","),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )  # fmt: skip
    if not has_even:
        return spec(bars, HEIGHT_PX)
    even = base().mark_rule(strokeDash=[6, 4], strokeWidth=1.6, color=colour("limit"))
    return spec(layered(bars, even.encode(x=alt.X("even:Q"))), HEIGHT_PX)
