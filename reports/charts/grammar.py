"""What every chart says the same way: its dataset, width, time axis, token axis and colours by role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from reports.theme import PHASE_LABELS, PHASES, colour

AnyChart = alt.Chart | alt.LayerChart

TOKENS_LABEL = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + 'M' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~r') + 'K' : format(datum.value, '~r')"
)
"""Ticks of a log2 token axis: 32K is 32,768."""

SECONDS_LABEL = (
    "datum.value >= 3600 ? format(datum.value / 3600, '~r') + ' h' : "
    "datum.value >= 60 ? format(datum.value / 60, '~r') + ' min' : "
    "datum.value >= 1 ? format(datum.value, '~r') + ' s' : format(datum.value * 1000, '~r') + ' ms'"
)
"""Ticks of a log axis of seconds."""

PHASE_ROLES: Mapping[str, str] = {"decode": "decode", "prefill": "prefill", "tool_wait": "wait"}


def base() -> alt.Chart:
    """A chart over the dataset that the page gives it."""
    return alt.Chart(alt.NamedData("rows"))


def spec(chart: AnyChart, height: int) -> dict[str, Any]:
    """`chart` as Vega-Lite JSON, as wide as its place and `height` px high; the page holds schema and config."""
    document: dict[str, Any] = chart.properties(width="container", height=height).to_dict()
    document.pop("$schema")
    document.pop("config")
    document["autosize"] = {"type": "fit-x", "contains": "padding"}
    return document


def time_axis(field: str = "at") -> alt.X:
    """The horizontal axis of moments, in UTC."""
    return (
        alt.X(field, type="temporal").scale(type="utc").axis(labelExpr=_TIME_LABEL, tickCount=14, labelFlush=True)
    ).title(None)


def amount_axis(field: str, title: str, **scale: Any) -> alt.Y:
    """The vertical axis of an amount, its unit written above it; k, M and G before large ones."""
    return alt.Y(field, type="quantitative").scale(**scale).axis(format="~s", tickCount=5).title(title)


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
    "? utcFormat(datum.value, '%a %-d %b') : utcFormat(datum.value, '%H:%M')"
)
