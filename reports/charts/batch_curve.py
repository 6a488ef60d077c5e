"""What a larger batch buys and costs: tokens per second and time per token over requests decoding at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, labelled, layered, spec
from reports.marts import Marts, rows
from reports.printed import ms_column
from reports.theme import colour

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKS = {"is_today": "today", "is_recommended": "recommended", "is_turning_point": "turning point"}
PLACES: Mapping[str, tuple[Any, int, int]] = {
    "today": ("left", 8, 27),
    "recommended": ("right", -8, -10),
    "turning point": ("left", 8, 13),
}
"""Where the name of a special point stands beside it: alignment, px right, px down; each apart from the others."""
UNITS = {"throughput": "tokens/s", "tpot": "ms per token"}
HEIGHT_PX = 150
HEADINGS = {
    "batch": "Batch (requests)",
    "throughput": "Throughput (tokens/s)",
    "tpot": "TPOT (ms)",
    "slo": "Objective for p95 TPOT (ms)",
    "fits": "Fits the KV cache",
    "named": "What is special",
}


def batch_charts(marts: Marts, deployment_id: str, chart_id: str) -> tuple[Chart, ...]:
    """Two charts over the batch: tokens/s, and TPOT with its objective; none without rows."""
    frame = rows(marts, "mart_batch_curve", deployment_id=deployment_id).sort("batch_requests")
    if frame.is_empty():
        return ()
    data = _named(frame)
    special = set(data["named"].str.split(", ").list.first().drop_nulls())
    named = tuple(words for words in MARKS.values() if words in special)
    source = labelled("mart_batch_curve", frame)

    def chart(field: str, title: str, note: str) -> Chart:
        words = f"{deployment_id}: {title[0].lower()}{title[1:]}"
        curve = _spec(field, named, has_slo=bool(data["slo"].is_not_null().any()))
        return Chart(f"{chart_id}-{field}", title, note, words, source, curve, data, HEADINGS)

    return (
        chart("throughput", "Tokens per second of one replica, by batch",
              "Beyond the KV limit (grey) the batch does not fit the cache at the observed lengths."),
        chart("tpot", "Time per output token, by batch", "Red dashes: the objective for the p95."),
    )  # fmt: skip


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    words = [pl.when(pl.col(flag).fill_null(value=False)).then(pl.lit(label)) for flag, label in MARKS.items()]
    return frame.select(
        pl.col("batch_requests").alias("batch"),
        pl.col("throughput_tokens_per_s").alias("throughput"),
        ms_column("tpot_s", "tpot"),
        ms_column("slo_s", "slo"),
        pl.when(pl.col("is_kv_ok").fill_null(value=True)).then(pl.lit("yes")).otherwise(pl.lit("no")).alias("fits"),
        pl.concat_str(words, separator=", ", ignore_nulls=True).alias("named"),
    )


def _batch_axis() -> alt.X:
    return (
        alt.X("batch", type="quantitative").scale(type="log", base=2, nice=False).axis(tickCount=8, format="~s")
    ).title("requests decoding at once in a replica")


@cache
def _spec(field: str, named: tuple[str, ...], *, has_slo: bool) -> dict[str, Any]:
    """The curve of `field`, with the points in `named` ringed and labelled."""
    amount = amount_axis(field, UNITS[field], zero=True)
    fits = alt.Color("fits", type="nominal").scale(domain=["yes", "no"], range=[colour("decode"), colour("before")])
    shown = [
        alt.Tooltip("batch:Q", format=","),
        alt.Tooltip("throughput:Q", title="tokens/s", format=",.0f"),
        alt.Tooltip("tpot:Q", title="TPOT (ms)", format=",.1f"),
        alt.Tooltip("fits:N", title="fits KV"),
    ]
    line = base().mark_line(color=colour("before"), strokeWidth=1).encode(x=_batch_axis(), y=amount)
    dots = base().mark_point(filled=True, opacity=1, size=30).encode(
        x=_batch_axis(), y=amount, color=fits.legend(None), tooltip=shown
    )  # fmt: skip
    layers = [line, dots]
    for words, (align, dx, dy) in PLACES.items():
        if words in named:
            special = base().transform_filter(f"indexof(datum.named, '{words}') === 0")
            ring = special.mark_point(filled=False, size=160, strokeWidth=1.5, color=colour("ink"))
            layers.append(ring.encode(x=_batch_axis(), y=amount))
            label = special.mark_text(align=align, dx=dx, dy=dy)
            layers.append(label.encode(x=_batch_axis(), y=amount, text="named:N"))
    if field == "tpot" and has_slo:
        limit = base().mark_line(strokeDash=[6, 4], strokeWidth=1.6, color=colour("limit"))
        layers.append(limit.encode(x=_batch_axis(), y=alt.Y("slo:Q")))
    return spec(layered(*layers), HEIGHT_PX)
