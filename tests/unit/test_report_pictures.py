"""Pictures of key charts: real PNG files in the colours of paper, whatever the names in them."""

from __future__ import annotations

import struct

from report_week import HOSTILE, full_page

from reports.pictures import KEY_CHARTS, NARROW_PX, SCALE, WIDE_PX, key_charts, png


def size_px(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


def test_each_deployment_has_its_key_charts_under_names_without_a_path() -> None:
    named = dict(key_charts(full_page()))
    assert {name.split("-", 2)[2].removesuffix(".png") for name in named} == set(KEY_CHARTS)
    assert sum(name.endswith("-residency.png") for name in named) == 3
    assert all(name.replace("-", "").removesuffix(".png").isalnum() for name in named)


def test_a_picture_is_as_wide_as_its_kind_and_draws_hostile_names() -> None:
    charts = dict(key_charts(full_page()))
    wide = next(chart for name, chart in charts.items() if name.endswith("residency.png") and HOSTILE in chart.alt)
    narrow = charts["deployment-0-tenants.png"]
    assert abs(size_px(png(wide))[0] / SCALE - WIDE_PX) < 5
    assert abs(size_px(png(narrow))[0] / SCALE - NARROW_PX) < 5


def test_another_chart_is_another_picture() -> None:
    charts = dict(key_charts(full_page()))
    assert png(charts["deployment-0-latency.png"]) != png(charts["deployment-0-waits.png"])
