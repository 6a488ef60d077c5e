"""One look for all charts: colours by role (CSS variables, so that light, dark and print differ), type and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "panel": "#f6f7f8",
    "ink": "#1b1f24",
    "quiet": "#57606a",
    "line": "#d5dae0",
    "grid": "#e9ecef",
    "decode": "#0072b2",
    "prefill": "#d98b00",
    "wait": "#009e73",
    "failed": "#8a929c",
    "now": "#1b1f24",
    "need": "#0072b2",
    "before": "#9aa3ad",
    "limit": "#b3261e",
    "add": "#b3261e",
    "release": "#00724f",
    "keep": "#57606a",
}
"""Role -> colour on white. Hues from Okabe and Ito's colour-blind safe set (https://jfly.uni-koeln.de/color)."""

DARK: Mapping[str, str] = {
    "paper": "#14171a",
    "panel": "#1c2024",
    "ink": "#e8eaed",
    "quiet": "#a3acb5",
    "line": "#3a4048",
    "grid": "#2a2f35",
    "decode": "#56b4e9",
    "prefill": "#f0b03f",
    "wait": "#3cc79b",
    "failed": "#7b848e",
    "now": "#e8eaed",
    "need": "#56b4e9",
    "before": "#6d7680",
    "limit": "#ff8a80",
    "add": "#ff8a80",
    "release": "#5ad1a8",
    "keep": "#a3acb5",
}
"""The same roles on a dark ground."""

FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', Arial, sans-serif"

PHASES = ("decode", "prefill", "tool_wait")
"""Phases in the order they are stacked, the steadiest at the bottom."""

PHASE_LABELS: Mapping[str, str] = {
    "decode": "decode",
    "prefill": "prefill",
    "tool_wait": "pinned waits",
}


def colour(role: str) -> str:
    """The CSS variable that holds the colour of `role`."""
    return f"var(--{role})"


def css_variables(palette: Mapping[str, str]) -> str:
    """`palette` as CSS declarations."""
    return "".join(f"--{role}:{value};" for role, value in palette.items())


def vega_config() -> dict[str, Any]:
    """Vega-Lite config shared by every chart of a page."""
    text = {"labelColor": colour("quiet"), "titleColor": colour("quiet"), "labelFontSize": 11, "titleFontSize": 11}
    return {
        "font": FONT,
        "aria": False,  # the page names each chart as one image; 2,000 named marks would be noise, and slow
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            **text,
            "domainColor": colour("line"),
            "tickColor": colour("line"),
            "gridColor": colour("grid"),
            "titleFontWeight": "normal",
            "labelLimit": 150,
            "labelOverlap": "greedy",
            "labelSeparation": 10,
        },
        "axisX": {"grid": False, "tickSize": 4},
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6, "titleAngle": 0, "titleAlign": "left",
                  "titleAnchor": "end", "titleY": -10, "titleX": 0},
        "legend": {**text, "orient": "top", "title": None, "symbolType": "square", "symbolSize": 90,
                   "labelLimit": 220, "offset": 22},
        "text": {"fontSize": 11, "color": colour("ink")},
        "rule": {"color": colour("ink")},
        "bar": {"color": colour("decode")},
        "line": {"strokeWidth": 1.6},
        "area": {"line": False, "opacity": 0.9},
    }  # fmt: skip
