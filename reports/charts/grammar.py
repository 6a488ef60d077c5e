"""What every chart says the same way: its dataset, width, time axis, token axis and colours by role."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import altair as alt

from reports.theme import PHASE_LABELS, PHASES, colour

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

AnyChart = alt.Chart | alt.LayerChart

TOKENS_LABEL = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + 'M' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + 'K' : format(datum.value, '~r')"
)
"""Ticks of a log2 token axis: 32K is 32,768."""

AMOUNT_LABEL = "abs(datum.value) >= 1000 ? format(datum.value, '~s') : format(datum.value, '~r')"
"""Ticks of an amount: k, M and G from a thousand on."""

SECONDS_LABEL = (
    "datum.value >= 3600 ? format(datum.value / 3600, '~r') + ' h' : "
    "datum.value >= 60 ? format(datum.value / 60, '~r') + ' min' : "
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : format(datum.value * 1000, '~r') + ' ms'"
)
"""Ticks of a log axis of seconds."""

SECONDS_TICKS = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 360000)
"""Round durations on a log axis, in s."""

DAYS_SHOWN = timedelta(days=2)
"""Longest span whose axis shows hours; a longer one shows days."""

PHASE_ROLES: Mapping[str, str] = {"decode": "decode", "prefill": "prefill", "tool_wait": "wait"}


def labelled(table: str, frame: pl.DataFrame) -> str:
    """The source of a chart: its table and the labels of its rows, such as "mart_kv_time, measured, modelled"."""
    return f"{table}, {', '.join(sorted(frame['provenance'].drop_nulls().unique()))}"


def base() -> alt.Chart:
    """A chart over the dataset that the page gives it."""
    return alt.Chart(alt.NamedData("rows"))


def layered(*charts: AnyChart) -> alt.LayerChart:
    """`charts` drawn over each other, the last on top."""
    return cast("alt.LayerChart", alt.layer(*charts))


def reading(at: alt.X, shown: list[alt.Tooltip], width_px: float = 2) -> AnyChart:
    """Invisible rules, one a row, that show `shown` under the pointer.

    Thousands of them are slow to draw, so the page leaves this layer out until a pointer comes near.
    """
    rules: AnyChart = base().mark_rule(opacity=0, strokeWidth=width_px).encode(x=at, tooltip=shown)
    return rules.properties(name="reading")


def spec(chart: AnyChart, height: int) -> dict[str, Any]:
    """`chart` as Vega-Lite JSON, as wide as its place and `height` px high; the page holds schema and config."""
    document: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    document.pop("$schema")
    document.pop("config")
    document["autosize"] = {"type": "fit-x", "contains": "padding"}
    return document


def is_long(rows: pl.DataFrame) -> bool:
    """Whether the moments in column `at` span days rather than hours."""
    return bool((rows["at"].max() - rows["at"].min()) > DAYS_SHOWN)  # type: ignore[operator]


def time_axis(*, has_days: bool) -> alt.X:
    """The horizontal axis of the moments in column `at`, in UTC: a tick a day, or hours on a short span."""
    ticks: Any = {"interval": "day", "step": 1} if has_days else 8
    return alt.X("at", type="temporal").scale(type="utc").axis(labelExpr=_TIME_LABEL, tickCount=ticks).title(None)


def seconds_axis(field: str, title: str, **scale: Any) -> alt.X:
    """A horizontal log axis of durations with round ticks from ms to hours."""
    axis = alt.Axis(labelExpr=SECONDS_LABEL, values=list(SECONDS_TICKS), grid=True)
    return alt.X(field, type="quantitative").scale(type="log", **scale).axis(axis).title(title)


def amount_axis(field: str, title: str, *, up_px: int = 10, **scale: Any) -> alt.Y:
    """The vertical axis of an amount, its unit written `up_px` above it; k, M and G before large ones."""
    axis = alt.Axis(labelExpr=AMOUNT_LABEL, tickCount=5, titleY=-up_px)
    return alt.Y(field, type="quantitative").scale(**scale).axis(axis).title(title)


def phase_colour(field: str = "phase") -> alt.Color:
    """Colour by phase, the same in every chart."""
    return (
        alt.Color(field, type="nominal")
        .scale(
            domain=[PHASE_LABELS[phase] for phase in PHASES],
            range=[colour(PHASE_ROLES[phase]) for phase in PHASES],
        )
        .title(None)
    )


_TIME_LABEL = (
    "utchours(datum.value) == 0 && utcminutes(datum.value) == 0 "
    "? utcFormat(datum.value, '%a %-d') : utcFormat(datum.value, '%H:%M')"
)
