"""The report in a real headless Chromium: drawn, silent, offline, readable on three screens and on paper."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from report_browser import (
    CLIPPED_WORDS,
    DESKTOP,
    OUTSIDE,
    OVERFLOWING,
    OVERLAPPING_WORDS,
    PHONE,
    TABLET,
    Seen,
    assert_readable,
    headless,
    opened,
)
from report_week import (
    CLOSING,
    HOSTILE,
    LONG,
    RIGHT_TO_LEFT,
    decision,
    drawing_code,
    empty_week,
    frame,
    full_html,
    full_page,
    full_week,
    page_of,
)

from reports.html import html

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with headless() as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "review.html"
    path.write_text(full_html(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def desktop(chromium: Any, file: Path) -> Iterator[tuple[Any, Seen]]:
    page, seen = opened(chromium, file, DESKTOP)
    yield page, seen
    page.context.close()


def test_asks_for_nothing_and_complains_of_nothing(desktop: tuple[Any, Seen], file: Path) -> None:
    page, seen = desktop
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert seen.requests == [file.as_uri()]
    assert seen.complaints == []


def test_no_name_ran_as_script(desktop: tuple[Any, Seen]) -> None:
    page, _ = desktop
    assert page.title() == "Capacity review 2026-W47"
    assert page.locator("img").count() == 0
    assert page.get_by_text(HOSTILE).count() > 3


def test_all_charts_are_drawn(desktop: tuple[Any, Seen]) -> None:
    page, _ = desktop
    plots = page.locator(".plot")
    assert plots.count() == 34
    marks = page.evaluate(
        """() => [...document.querySelectorAll(".plot")].map((plot) => {
          const box = plot.querySelector("svg").getBoundingClientRect();
          return [box.width, box.height, plot.querySelectorAll("path, rect, line").length];
        })"""
    )
    assert all(width > 150 and height > 40 and count > 2 for width, height, count in marks)


def test_first_screen_holds_the_decision(desktop: tuple[Any, Seen]) -> None:
    page, _ = desktop
    page.evaluate("window.scrollTo(0, 0)")
    decided = page.locator("#decision .verdict:not(.heads)")
    assert decided.count() == len(full_page().verdicts) == 4
    for number in range(4):
        for part in ("h2", ".action", ".count", "dl", ".why"):
            box = decided.nth(number).locator(part).bounding_box()
            assert box is None or box["y"] + box["height"] <= DESKTOP[1], (number, part)
    assert page.locator("#headline").bounding_box()["y"] < 100
    assert "add 6 GPUs" in page.locator("#headline").inner_text()


def test_nothing_is_cut_off_or_overlaps_on_a_desktop(desktop: tuple[Any, Seen]) -> None:
    assert_readable(desktop[0])


@pytest.mark.parametrize("size", [PHONE, TABLET], ids=["phone", "tablet"])
def test_nothing_is_cut_off_or_overlaps_on_small_screens(chromium: Any, file: Path, size: tuple[int, int]) -> None:
    page, seen = opened(chromium, file, size)
    assert_readable(page)
    assert seen.complaints == []
    page.context.close()


def test_the_geometry_checks_see(desktop: tuple[Any, Seen]) -> None:
    """Each check finds the fault it is for."""
    page, _ = desktop
    page.evaluate("""() => {
      const text = (x) => `<text x="${x}" y="20">planted words</text>`;
      const planted = document.body.appendChild(document.createElement("div"));
      planted.id = "planted";
      planted.innerHTML = `<p style="width:20px;white-space:nowrap">planted and too wide</p>
        <div style="width:3000px">planted outside</div>
        <div class="plot"><svg width="80" height="40" style="display:block">${text(0)}${text(40)}</svg></div>`;
    }""")
    try:
        assert page.evaluate(OVERFLOWING) == ["planted and too wide"]
        assert any("planted outside" in words for words in page.evaluate(OUTSIDE))
        assert page.evaluate(CLIPPED_WORDS) == ["planted words"] * 2
        assert page.evaluate(OVERLAPPING_WORDS) == ["planted words × planted words"]
    finally:
        page.evaluate("document.getElementById('planted').remove()")


def test_dark_and_light_differ_and_paper_is_white_and_prints(chromium: Any, file: Path) -> None:
    page, _ = opened(chromium, file, DESKTOP, "dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 26)"
    label = page.locator(".plot svg text").first
    assert label.evaluate("(e) => getComputedStyle(e).fill") == "rgb(163, 172, 181)"
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert label.evaluate("(e) => getComputedStyle(e).fill") == "rgb(87, 96, 106)"
    paper = page.pdf(format="A4", print_background=True)
    assert paper.startswith(b"%PDF")
    assert len(paper) > 50_000
    assert page.evaluate(OUTSIDE) == []
    page.context.close()


def test_the_data_table_is_one_click_away_and_saves_as_csv(desktop: tuple[Any, Seen], tmp_path: Path) -> None:
    page, _ = desktop
    figure = page.locator("figure[data-chart='deployment-0-tenants']")
    figure.locator("summary").click()
    figure.locator(".rows td").first.wait_for()
    cells = figure.locator(".rows td").all_inner_texts()
    assert CLOSING in cells
    with page.expect_download() as started:
        figure.locator("button").click()
    saved = tmp_path / "tenants.csv"
    started.value.save_as(saved)
    with saved.open(newline="", encoding="utf-8") as handle:
        lines = list(csv.reader(handle))
    assert lines[0][0] == "Tenant"
    assert [cell for line in lines[1:] for cell in line] == cells


def test_hover_shows_values_as_text(desktop: tuple[Any, Seen]) -> None:
    page, seen = desktop
    figure = page.locator("figure[data-chart='deployment-0-tenants']")
    figure.scroll_into_view_if_needed()
    figure.locator(".mark-rect path").last.hover()
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "GiB·s" in tip.inner_text()
    assert tip.locator("script, img").count() == 0
    assert seen.complaints == []


def test_a_long_chart_shows_its_values_once_a_pointer_comes_near(desktop: tuple[Any, Seen]) -> None:
    page, _ = desktop
    figure = page.locator("figure[data-chart='deployment-0-residency']")
    figure.locator(".plot").hover()
    page.wait_for_selector("figure[data-chart='deployment-0-residency'][data-drawn=read]", timeout=60_000)
    figure.locator(".plot").hover(position={"x": 600, "y": 120})
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "capacity (GiB)" in tip.inner_text()


def short_week() -> dict[str, pl.DataFrame]:
    """Fifteen minutes of data: no rhythm, no interval, no week before."""
    tables = full_week(windows=3)
    tables["mart_hours"] = tables["mart_hours"].head(1)
    unknown = [pl.lit(None, pl.Float64).alias(f"previous_{name}") for name in ("share_ratio",)]
    tables["mart_length_histogram"] = tables["mart_length_histogram"].with_columns(unknown)
    return tables


def thin_week() -> dict[str, pl.DataFrame]:
    """One request without times, sessions or a tenant: most tables empty, the rest of one row."""
    tables = empty_week()
    tables["mart_decision"] = frame("mart_decision", [decision(LONG, 1, 1, "keep", low_gpus=None, high_gpus=None)])
    tables["mart_lengths"] = full_week()["mart_lengths"].head(1).with_columns(deployment_id=pl.lit(LONG))
    tables["mart_residency"] = full_week()["mart_residency"].head(1).with_columns(deployment_id=pl.lit(LONG))
    tables["mart_batch_curve"] = frame("mart_batch_curve", [{"deployment_id": LONG, "batch_requests": 1, "tpot_s": 0.01,
                                                            "throughput_tokens_per_s": 100.0}])  # fmt: skip
    return tables


def wide_week() -> dict[str, pl.DataFrame]:
    """Forty deployments."""
    tables = empty_week()
    names = [RIGHT_TO_LEFT, LONG, *(f"deployment-{n:02}" for n in range(38))]
    rows = [decision(name, 8 + n % 9, 10, "add 3 GPUs" if n % 3 else "keep") for n, name in enumerate(names)]
    tables["mart_decision"] = frame("mart_decision", rows)
    return tables


@pytest.mark.parametrize("week", [short_week, thin_week, wide_week], ids=lambda week: str(week.__name__))
def test_odd_weeks_look_right(chromium: Any, tmp_path: Path, week: Callable[[], dict[str, pl.DataFrame]]) -> None:
    path = tmp_path / "odd.html"
    path.write_text(html(page_of(week()), drawing_code()), encoding="utf-8")
    page, seen = opened(chromium, path, DESKTOP)
    assert seen.complaints == []
    assert_readable(page)
    page.context.close()


def test_the_first_stop_of_the_keyboard_leads_to_the_decision(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(html(page_of(empty_week()), drawing_code()), encoding="utf-8")
    page, seen = opened(chromium, path, DESKTOP)
    assert "nothing to decide" in page.locator("h1").inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "jump"
    assert page.locator(".jump").bounding_box()["x"] >= 0
    assert seen.complaints == []
    page.context.close()
