"""KV residency over the week against what the fleet can hold, by phase."""

from __future__ import annotations

from functools import cache
from typing import Any

import altair as alt
import polars as pl

from reports.blocks import Chart
from reports.charts.grammar import amount_axis, base, is_long, layered, phase_colour, reading, spec, time_axis
from reports.marts import ALL, Marts, only, rows
from reports.printed import gib, gib_column
from reports.theme import PHASE_LABELS, PHASES, colour

OBSERVED, PROMISED = "observed", "slo"
HEIGHT_PX = 230


def residency_chart(marts: Marts, deployment_id: str, chart_id: str) -> Chart | None:
    """Five-minute means stacked by phase, the total at SLO pace as a line, capacity as a rule; None without rows."""
    frame = rows(marts, "mart_residency", deployment_id=deployment_id)
    if frame.is_empty():
        return None
    pace = OBSERVED if frame["pace"].is_in([OBSERVED]).any() else PROMISED
    drawn = frame.filter(pl.col("pace") == pace, pl.col("residency_mean_bytes") > 0)
    labels = drawn["provenance"].drop_nulls().unique()
    data = _wide(frame, pace)
    lines = tuple(name for name in ("promised", "capacity") if data[name].is_not_null().any())
    decision = only(marts, "mart_decision", deployment_id=deployment_id)
    capacity = gib(decision["now_capacity_bytes"])
    return Chart(
        chart_id=chart_id,
        title=f"KV cache held over the week, against the {capacity} that today's replicas offer",
        note=_note(pace, set(labels)),
        alt=f"{deployment_id}: KV residency in GiB over the week by phase, stacked, against {capacity} of capacity; "
        f"largest one-second mean {gib(decision['residency_max_bytes'])}",
        source=f"mart_residency, {', '.join(sorted(labels))}",
        spec=_spec(lines, has_days=is_long(data)),
        rows=data,
        headings={
            "at": "Five minutes from (UTC)",
            **{PHASE_LABELS[phase]: f"{PHASE_LABELS[phase]} (GiB)" for phase in PHASES},
            "promised": "All phases at SLO pace (GiB)",
            "capacity": "Capacity (GiB)",
        },
        is_wide=True,
    )  # fmt: skip


def _note(pace: str, labels: set[str]) -> str:
    if pace == PROMISED:
        how = "at the promised pace: the log has no times of its own."
    else:
        how = "as logged" if "measured" in labels else "with modelled times, for the log has none"
        how += ", modelled where the log has no times" if {"measured", "modelled"} <= labels else ""
        how += ". Thin line: the same traffic at the promised pace."
    return f"Means of five minutes by phase, {how} Red dashes: what all replicas hold."


def _wide(frame: pl.DataFrame, pace: str) -> pl.DataFrame:
    """One row a window: GiB of each phase at `pace`, of all at SLO pace where `pace` is another, and capacity."""
    held = frame.filter(pl.col("pace") == pace, pl.col("phase") != ALL).pivot(
        "phase", index="window_started_at", values="residency_mean_bytes"
    )
    absent = [phase for phase in PHASES if phase not in held.columns]
    held = held.with_columns(pl.lit(0.0).alias(phase) for phase in absent)
    total = frame.filter(pl.col("pace") == PROMISED, pl.col("phase") == ALL, pl.lit(pace != PROMISED))
    offer = frame.select("window_started_at", "capacity_bytes").unique("window_started_at", keep="first")
    return (
        held.join(offer, on="window_started_at", how="left")
        .join(total.select("window_started_at", promised_bytes="residency_mean_bytes"), on="window_started_at",
              how="left")
        .sort("window_started_at")
        .select(
            pl.col("window_started_at").alias("at"),
            *(gib_column(phase, PHASE_LABELS[phase]).fill_null(0.0) for phase in PHASES),
            gib_column("promised_bytes", "promised"),
            gib_column("capacity_bytes", "capacity"),
        )
    )  # fmt: skip


@cache
def _spec(lines: tuple[str, ...], *, has_days: bool) -> dict[str, Any]:
    """The stacked phases, and over them those of "promised" and "capacity" that have values."""
    fields: list[Any] = [PHASE_LABELS[phase] for phase in PHASES]
    at = time_axis(has_days=has_days)
    amount = amount_axis("gib", "GiB").stack("zero")
    order = alt.Order("rank", type="ordinal")
    held = (
        base()
        .transform_fold(fields, as_=["phase", "gib"])
        .transform_calculate(rank=f"indexof({fields}, datum.phase)")
        .mark_area(interpolate="step-after")
        .encode(x=at, y=amount, color=phase_colour(), order=order)
    )
    strokes = {
        "promised": base().mark_line(strokeWidth=1, color=colour("ink")),
        "capacity": base().mark_line(strokeWidth=1.6, strokeDash=[6, 4], color=colour("limit")),
    }
    over = [strokes[name].encode(x=at, y=alt.Y(name, type="quantitative")) for name in lines]
    return spec(layered(held, *over, reading(at, _shown(fields))), HEIGHT_PX)


def _shown(fields: list[Any]) -> list[alt.Tooltip]:
    shown = [alt.Tooltip("at:T", title="from (UTC)", format="%a %-d %b %H:%M")]
    shown += [alt.Tooltip(field, type="quantitative", title=f"{field} (GiB)", format=",.1f") for field in fields]
    shown += [alt.Tooltip("promised:Q", title="at SLO pace (GiB)", format=",.1f")]
    shown += [alt.Tooltip("capacity:Q", title="capacity (GiB)", format=",.1f")]
    return shown
