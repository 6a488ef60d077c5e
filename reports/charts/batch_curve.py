"""What a larger batch buys and costs: decode's tokens/s and time per token, prefill's time to the first token."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import AnyChart, amount_axis, base, labelled, layered, spec
from reports.marts import Marts, engine_word, rows
from reports.printed import ms_column
from reports.theme import colour

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKS = {"is_recommended": "recommended", "is_turning_point": "turning point"}
PLACES: Mapping[str, tuple[float, int]] = {"recommended": (0.35, -10), "turning point": (0.75, 13)}
"""Special point -> share of the axis from which its name stands left of it, and px down: apart from each other."""
LIMITS = {"kv_limit": ("KV limit", 6), "seats": ("max_num_seqs", 19)}
"""Column of an upright line -> its name and how far above the plot that stands, in px: one row each."""
UNIT_UP_PX = 36
"""How far above the plot the unit stands: over both rows of names."""
HEIGHT_PX = 150

Placed = tuple[tuple[str, bool], ...]
"""Names, each with whether it stands left of what it names: it would leave the chart on the right."""
HEADINGS = {
    "batch": "Batch (requests)",
    "throughput": "Decode (tokens/s)",
    "tpot": "TPOT (ms)",
    "ttft": "TTFT, no queue (ms)",
    "tpot_slo": "Objective for p95 TPOT (ms)",
    "ttft_slo": "Objective for p95 TTFT (ms)",
    "fits": "Fits the KV cache",
    "named": "What is special",
    "kv_limit": "KV limit (requests)",
    "seats": "max_num_seqs (requests)",
}


DECODE, PREFILL = "throughput", "ttft"
HALF = 0.5


class Curve(NamedTuple):
    """One chart over the batch: its unit, title, what its note says, and the column of its objective."""

    unit: str
    title: str
    note: str
    slo: str = ""


CURVES = {
    DECODE: Curve(
        "tokens/s",
        "Decode: tokens per second of one {engine}, by batch",
        "KV limit: the largest batch of the observed lengths that fits the cache; grey dots are beyond it.",
    ),
    "tpot": Curve(
        "ms per token", "Decode: time per output token, by batch", "Red dashes: the objective for the p95.", "tpot_slo"
    ),
    PREFILL: Curve(
        "ms to the first token",
        "Prefill: time to the first token without a queue, by batch",
        "A mean prompt beside the others of the batch. Red dashes: the objective for the p95, queue included.",
        "ttft_slo",
    ),
}
"""Column of the chart -> what is drawn."""


def batch_charts(marts: Marts, deployment_id: str, chart_id: str) -> tuple[Chart, ...]:
    """Decode's tokens/s and TPOT and prefill's TTFT over the batch, with limits and objectives; none without rows."""
    frame = rows(marts, "mart_batch_curve", deployment_id=deployment_id).sort("batch_requests")
    if frame.is_empty():
        return ()
    data = _named(frame)
    special = set(data["named"].str.split(", ").list.first().drop_nulls())
    at = {words: data.filter(pl.col("named").str.starts_with(words))["batch"].first() for words in special}
    named = tuple((words, _share(data, at[words]) > PLACES[words][0]) for words in MARKS.values() if words in special)
    first = {name: data[name][0] for name in LIMITS if data[name][0] is not None}
    limits = tuple((name, _share(data, value) > HALF) for name, value in first.items())
    engine = engine_word(marts, deployment_id)
    titles = {field: curve.title.format(engine=engine) for field, curve in CURVES.items()}
    return tuple(
        Chart(
            f"{chart_id}-{field}",
            titles[field],
            curve.note,
            f"{deployment_id}: {titles[field][0].lower()}{titles[field][1:]}",
            labelled("mart_batch_curve", frame),
            _spec(
                field,
                named if field != PREFILL else (),
                limits,
                engine,
                has_slo=bool(curve.slo) and data[curve.slo][0] is not None,
            ),
            data,
            HEADINGS,
        )
        for field, curve in CURVES.items()
    )


def _share(data: pl.DataFrame, batch: Any) -> float:
    """How far along the log axis `batch` stands, 0 to 1."""
    last = max(float(value) for name in ("batch", *LIMITS) if (value := data[name].max()) is not None)  # type: ignore[arg-type]
    return math.log(max(float(batch), 1.0)) / math.log(last) if last > 1 else 0.0


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    words = [pl.when(pl.col(flag).fill_null(value=False)).then(pl.lit(label)) for flag, label in MARKS.items()]
    return frame.select(
        pl.col("batch_requests").alias("batch"),
        pl.col("throughput_tokens_per_s").alias("throughput"),
        ms_column("tpot_s", "tpot"),
        ms_column("ttft_s", "ttft"),
        ms_column("slo_s", "tpot_slo"),
        ms_column("slo_ttft_p95_s", "ttft_slo"),
        pl.when(pl.col("is_kv_ok").fill_null(value=True)).then(pl.lit("yes")).otherwise(pl.lit("no")).alias("fits"),
        pl.concat_str(words, separator=", ", ignore_nulls=True).alias("named"),
        pl.col("kv_limit_requests").alias("kv_limit"),
        pl.lit(frame.filter("is_today")["batch_requests"].first(), pl.Int64).alias("seats"),
    )


def _batch_axis(engine: str, field: str = "batch") -> alt.X:
    return (
        alt.X(field, type="quantitative").scale(type="log", base=2, nice=False).axis(tickCount=8, format="~s")
    ).title(f"requests decoding at once in a {engine}")


@cache
def _spec(field: str, named: Placed, limits: Placed, engine: str, *, has_slo: bool) -> dict[str, Any]:
    """The curve of `field`, the points in `named` ringed, and `limits` as upright lines with their names."""
    curve, batch = CURVES[field], _batch_axis(engine)
    amount = amount_axis(field, curve.unit, up_px=UNIT_UP_PX, zero=True)
    fits = alt.Color("fits", type="nominal").scale(domain=["yes", "no"], range=[colour("decode"), colour("before")])
    shown = [
        alt.Tooltip("batch:Q", format=","),
        alt.Tooltip("throughput:Q", title="tokens/s", format=",.0f"),
        alt.Tooltip("tpot:Q", title="TPOT (ms)", format=",.1f"),
        alt.Tooltip("ttft:Q", title="TTFT, no queue (ms)", format=",.1f"),
        alt.Tooltip("fits:N", title="fits KV"),
    ]
    line = base().mark_line(color=colour("before"), strokeWidth=1).encode(x=batch, y=amount)
    dots = base().mark_point(filled=True, opacity=1, size=30).encode(
        x=batch, y=amount, color=fits.legend(None), tooltip=shown
    )  # fmt: skip
    under = _uprights(limits, engine)
    if has_slo:
        limit = base().mark_line(strokeDash=[6, 4], strokeWidth=1.6, color=colour("limit"))
        under.append(limit.encode(x=batch, y=alt.Y(curve.slo, type="quantitative")))
    layers = [*under, line, dots]
    for words, is_left in named:
        special = base().transform_filter(f"indexof(datum.named, '{words}') === 0")
        ring = special.mark_point(filled=False, size=160, strokeWidth=1.5, color=colour("ink"))
        layers.append(ring.encode(x=batch, y=amount))
        label = special.mark_text(**_beside(is_left=is_left, px=8), dy=PLACES[words][1])
        layers.append(label.encode(x=batch, y=amount, text="named:N"))
    return spec(layered(*layers), HEIGHT_PX)


def _uprights(limits: Placed, engine: str) -> list[AnyChart]:
    """A line for each of `limits`, from the first row of the data, its name above the plot."""
    drawn: list[AnyChart] = []
    first = base().transform_filter("datum.batch === 1")
    for name, is_left in limits:
        words, up_px = LIMITS[name]
        rule = first.mark_rule(strokeWidth=1.2, color=colour("quiet"))
        drawn.append(rule.encode(x=_batch_axis(engine, name), y=alt.value(-up_px - 5), y2=alt.value(HEIGHT_PX)))
        label = first.mark_text(**_beside(is_left=is_left, px=4), color=colour("quiet"))
        drawn.append(label.encode(x=_batch_axis(engine, name), y=alt.value(-up_px), text=alt.value(words)))
    return drawn


def _beside(*, is_left: bool, px: int) -> dict[str, Any]:
    """A name `px` left or right of what it names."""
    return {"align": "right", "dx": -px} if is_left else {"align": "left", "dx": px}
