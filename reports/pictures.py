"""Charts as PNG pictures, the look of the page on white."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import vl_convert

from reports.blocks import chart_document
from reports.theme import LIGHT, vega_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.blocks import Chart
    from reports.page import Page

KEY_CHARTS = (
    "residency",
    "tenants",
    "prompts",
    "outputs",
    "arrivals",
    "batch-throughput",
    "latency",
    "waits",
    "forecast",
)
"""Ends of the ids of the charts that are worth a picture."""
WIDE_PX, NARROW_PX = 1000, 640
SCALE = 2.0
"""Pixels of the picture for one of the page."""
_ROLE = re.compile(r"var\(--([a-z]+)\)")


def key_charts(page: Page) -> Iterator[tuple[str, Chart]]:
    """File name (without a path) and chart of each key chart of every deployment."""
    for chapter in page.chapters:
        for section in chapter.sections:
            for chart in section.charts:
                if chart.chart_id.startswith(f"{chapter.anchor}-") and chart.chart_id.endswith(KEY_CHARTS):
                    yield f"{chart.chart_id}.png", chart


def png(chart: Chart) -> bytes:
    """`chart` as a PNG file: title, axes and legend on white, no script and no outside font."""
    document = chart_document(chart)
    names = [field["name"] for field in document["fields"]]
    spec: dict[str, Any] = {
        **document["spec"],
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": chart.title, "subtitle": chart.alt.split(":", 1)[0], "anchor": "start"},
        "width": WIDE_PX if chart.is_wide else NARROW_PX,
        "padding": 12,
        "datasets": {"rows": [dict(zip(names, row, strict=True)) for row in document["rows"]]},
        "config": {**vega_config(), "background": LIGHT["paper"]},
    }
    spec["layer"] = [layer for layer in spec.get("layer", []) if layer.get("name") != "reading"]
    if not spec["layer"]:
        del spec["layer"]
    coloured = _ROLE.sub(lambda role: LIGHT[role.group(1)], json.dumps(spec))
    return bytes(vl_convert.vegalite_to_png(coloured, scale=SCALE))
