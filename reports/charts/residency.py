"""KV residency over the week against what the fleet can hold, by phase."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, is_long, layered, reading, spec, time_axis
from reports.marts import ALL, Marts, only, rows
from reports.printed import gib, gib_column, whole
from reports.theme import PHASE_LABELS, PHASES, colour

OBSERVED, PROMISED = "observed", "slo"
HEIGHT_PX = 230
NARROW_PX = 520
"""Width below which the legend takes several lines."""
HOLDING = ("decode", "prefill")
"""Phases that hold KV under any policy, stacked from the bottom up; each is also the role of its colour."""


class Line(NamedTuple):
    """One line over the stack: its words, colour role, width and dashes in px."""

    words: str
    role: str
    width_px: float
    dash_px: tuple[int, ...] = ()


LINES = {
    "pinned": Line("tool waits, if pinned", "wait", 1),
    "promised": Line("held at SLO pace", "ink", 1),
    "capacity": Line("capacity", "limit", 1.6, (6, 4)),
}
"""Column of the chart -> the line drawn over the stack."""


def residency_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Five-minute means stacked by phase, and the total at SLO pace, pinned tool waits and capacity as lines."""
    frame = rows(marts, "mart_residency", deployment_id=deployment_id)
    if frame.is_empty():
        return None
    pace = OBSERVED if frame["pace"].is_in([OBSERVED]).any() else PROMISED
    drawn = frame.filter(pl.col("pace") == pace, pl.col("residency_mean_bytes") > 0)
    labels = drawn.filter(pl.col("phase").is_in(HOLDING))["provenance"].drop_nulls().unique()
    data = _wide(frame, pace)
    lines = tuple(name for name in LINES if (data[name] > 0).any())
    decision = only(marts, "mart_decision", deployment_id=deployment_id)
    capacity = gib(decision["now_capacity_bytes"])
    return Chart(
        chart_id=chart_id,
        title=f"KV cache held over the week, against the {capacity} that today's replicas offer",
        note=_note(pace, _times(marts, deployment_id, set(labels)), lines),
        alt=f"{deployment_id}: KV residency in GiB over the week by phase, stacked, against {capacity} of capacity; "
        f"largest instant at SLO pace {gib(decision['residency_max_bytes'])}",
        source=f"mart_residency, {', '.join(sorted(labels))}",
        spec=_spec(lines, has_days=is_long(data)),
        rows=data,
        headings={
            "at": "Five minutes from (UTC)",
            **{PHASE_LABELS[phase]: f"{PHASE_LABELS[phase]} (GiB)" for phase in HOLDING},
            **{name: f"{line.words} (GiB)" for name, line in LINES.items()},
        },
        is_wide=True,
    )  # fmt: skip


def _note(pace: str, times: str, lines: tuple[str, ...]) -> str:
    how = times if pace != PROMISED else "at the promised pace, for the log has no times"
    promised = " At SLO pace: modelled, if each answer came just as fast as promised." if "promised" in lines else ""
    pinned = " Tool waits, if pinned: modelled, what would be held on top." if "pinned" in lines else ""
    return f"Means of five minutes by phase, {how}.{promised}{pinned}"


def _times(marts: Marts, deployment_id: str, labels: set[str]) -> str:
    """Where the times of the requests are from: the log, the model, or how many from each."""
    if labels <= {"measured"}:
        return "times as logged"
    logged = {
        words: only(marts, "mart_latency", deployment_id=deployment_id, measure=measure, source="logged")
        for measure, words in (("ttft", "the first token"), ("e2e", "the end"))
    }
    counted = [
        f"to {words} of {whole(row['timed_requests'])} of {whole(row['requests'])} requests"
        for words, row in logged.items()
        if row["timed_requests"]
    ]
    if not counted:
        return "with modelled times, for the log has none"
    return f"times as logged where they are ({', '.join(counted)}), else modelled"


def _wide(frame: pl.DataFrame, pace: str) -> pl.DataFrame:
    """One row a window: GiB of each phase at `pace`, and of LINES."""
    drawn = frame.filter(pl.col("pace") == pace)
    held = drawn.filter(pl.col("phase") != ALL).pivot("phase", index="window_started_at", values="residency_mean_bytes")
    absent = [phase for phase in PHASES if phase not in held.columns]
    held = held.with_columns(pl.lit(None, pl.Float64).alias(phase) for phase in absent)
    total = frame.filter(pl.col("pace") == PROMISED, pl.col("phase") == ALL, pl.lit(pace != PROMISED))
    total = total.select("window_started_at", promised_bytes="residency_mean_bytes")
    offer = frame.select("window_started_at", "capacity_bytes").unique("window_started_at", keep="first")
    return (
        held.join(offer, on="window_started_at", how="left")
        .join(total, on="window_started_at", how="left")
        .sort("window_started_at")
        .select(
            pl.col("window_started_at").alias("at"),
            *(gib_column(phase, PHASE_LABELS[phase]).fill_null(0.0) for phase in HOLDING),
            gib_column("tool_wait", "pinned"),
            gib_column("promised_bytes", "promised"),
            gib_column("capacity_bytes", "capacity"),
        )
    )


@cache
def _spec(lines: tuple[str, ...], *, has_days: bool) -> dict[str, Any]:
    """The phases that stand against capacity stacked, and over them those of LINES that have values."""
    fields: list[Any] = [PHASE_LABELS[phase] for phase in HOLDING]
    at, amount = time_axis(has_days=has_days), amount_axis("gib", "GiB").stack("zero")
    shades = dict(zip(fields, HOLDING, strict=True)) | {LINES[name].words: LINES[name].role for name in lines}
    tint = alt.Scale(domain=list(shades), range=[colour(role) for role in shades.values()])
    legend = alt.Legend(columns=alt.ExprRef(f"width < {NARROW_PX} ? 2 : {len(shades)}"))
    held = (
        base()
        .transform_fold(fields, as_=["phase", "gib"])
        .transform_calculate(rank=f"indexof({fields}, datum.phase)")
        .mark_area(interpolate="step-after")
        .encode(
            x=at,
            y=amount,
            color=alt.Color("phase", type="nominal").scale(tint).legend(legend).title(None),
            order=alt.Order("rank", type="ordinal"),
        )
    )
    over = [
        base()
        .mark_line(strokeWidth=LINES[name].width_px, strokeDash=list(LINES[name].dash_px))
        .encode(x=at, y=alt.Y(name, type="quantitative"), color=alt.datum(LINES[name].words))
        for name in lines
    ]
    return spec(layered(held, *over, reading(at, _shown(fields, lines))), HEIGHT_PX)


def _shown(fields: list[Any], lines: tuple[str, ...]) -> list[alt.Tooltip]:
    words = {field: field for field in fields} | {name: LINES[name].words for name in lines}
    amounts = [alt.Tooltip(name, type="quantitative", title=f"{label} (GiB)", format=",.1f") for name, label in
               words.items()]  # fmt: skip
    return [alt.Tooltip("at:T", title="from (UTC)", format="%a %-d %b %H:%M"), *amounts]
