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
    PAPER,
    PHONE,
    TABLET,
    Seen,
    assert_readable,
    headless,
    opened,
    resized,
    serious_findings,
)
from report_week import (
    CLOSING,
    HOSTILE,
    LONG,
    RIGHT_TO_LEFT,
    VERSIONS,
    WEEK,
    decision,
    drawing_code,
    empty_week,
    frame,
    full_page,
    full_week,
    page_of,
)

from reports.html import html
from reports.page import Page
from reports.whatif import whatif_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with headless() as browser:
        yield browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "review.html"
    path.write_text(html(page_of(full_week(windows=864)), drawing_code()), encoding="utf-8")
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
    assert plots.count() == 3 * 15 + 3 + 1 + 3
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


@pytest.fixture(scope="module")
def small(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Seen]]:
    """Four hours of the same week: few marks, for what takes long on many."""
    path = tmp_path_factory.mktemp("small") / "review.html"
    path.write_text(html(page_of(full_week(windows=48)), drawing_code()), encoding="utf-8")
    page, seen = opened(chromium, path, DESKTOP)
    yield page, seen
    page.context.close()


@pytest.mark.parametrize("size", [PHONE, TABLET], ids=["phone", "tablet"])
def test_nothing_is_cut_off_or_overlaps_on_small_screens(small: tuple[Any, Seen], size: tuple[int, int]) -> None:
    page, seen = small
    resized(page, size)
    assert_readable(page)
    assert seen.complaints == []
    resized(page, DESKTOP)


def test_dark_and_light_differ_and_paper_is_white_and_prints(small: tuple[Any, Seen]) -> None:
    page, _ = small
    page.emulate_media(color_scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 26)"
    label = page.locator(".plot svg text").first
    assert label.evaluate("(e) => getComputedStyle(e).fill") == "rgb(163, 172, 181)"
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert label.evaluate("(e) => getComputedStyle(e).fill") == "rgb(87, 96, 106)"
    resized(page, PAPER)
    assert_readable(page)
    page.evaluate("""() => addEventListener("beforeprint", () => {
      document.body.dataset.printed = document.querySelector("figure svg").getAttribute("width");
    })""")
    paper = page.pdf(format="A4", print_background=True)
    assert paper.startswith(b"%PDF")
    assert len(paper) > 50_000
    assert page.evaluate("document.body.dataset.printed") == "700"
    page.emulate_media(media="screen", color_scheme="light")
    resized(page, DESKTOP)


def test_the_keyboard_reaches_the_data_of_a_chart(small: tuple[Any, Seen]) -> None:
    page, _ = small
    figure = page.locator("figure[data-chart='deployment-0-latency']")
    figure.locator("summary").focus()
    page.keyboard.press("Enter")
    figure.locator(".rows td").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Save as CSV"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "rows"


def test_axe_finds_nothing_serious(small: tuple[Any, Seen]) -> None:
    page, _ = small
    assert serious_findings(page) == []
    page.emulate_media(color_scheme="dark")
    assert serious_findings(page, "color-contrast") == []
    page.emulate_media(color_scheme="light")


def test_axe_sees(small: tuple[Any, Seen]) -> None:
    page, _ = small
    page.evaluate(
        "document.body.innerHTML = `<main><h1>planted</h1><button></button><p style='color:#ddd'>pale</p></main>`"
    )
    page.emulate_media(color_scheme="light")
    assert {finding.split(":")[0] for finding in serious_findings(page)} == {"button-name", "color-contrast"}


def odd_week() -> dict[str, pl.DataFrame]:
    """58 minutes without a week before: one deployment without sessions, one without times, one of a single request
    under a name of 200 characters, one whose requests were all rejected.
    """
    tables = full_week(windows=12)
    names = {"chat": "no sessions", "coding-agent": "no times", HOSTILE: LONG}
    tables = {
        name: rows.with_columns(pl.col("deployment_id").replace(names)) if "deployment_id" in rows.columns else rows
        for name, rows in tables.items()
    }
    for name in ("mart_tool_waits", "mart_tool_wait_histogram", "mart_sessions"):
        tables[name] = tables[name].filter(pl.col("deployment_id") == "no times")
    for name in ("mart_latency", "mart_hours"):
        tables[name] = tables[name].filter(pl.col("deployment_id") == "no sessions")
    tables["mart_hours"] = tables["mart_hours"].head(1)
    single = pl.col("deployment_id") != LONG
    for name in ("mart_residency", "mart_arrival_windows", "mart_batch_curve", "mart_length_histogram"):
        kept = tables[name].filter(single)
        tables[name] = pl.concat([kept, tables[name].filter(~single).head(1)])
    unknown = [pl.lit(None, pl.Float64).alias("previous_share_ratio")]
    tables["mart_length_histogram"] = tables["mart_length_histogram"].with_columns(unknown)
    tables["mart_decision"] = frame("mart_decision", [
        decision("no sessions", 4, 4, "keep"), decision("no times", 8, 4, "add 4 GPUs"),
        decision(LONG, 1, 1, "keep", low_gpus=None, high_gpus=None),
        decision("all rejected", 2, 2, "no usable traffic this week", binding_demand="none", low_gpus=None,
                 high_gpus=None, binding_text="nothing to size by: what runs today is kept", usable_requests=0),
    ])  # fmt: skip
    return tables


def wide_week() -> dict[str, pl.DataFrame]:
    """Forty deployments."""
    tables = empty_week()
    names = [RIGHT_TO_LEFT, LONG, *(f"deployment-{n:02}" for n in range(38))]
    rows = [decision(name, 8 + n % 9, 10, "add 3 GPUs" if n % 3 else "keep") for n, name in enumerate(names)]
    tables["mart_decision"] = frame("mart_decision", rows)
    return tables


@pytest.mark.parametrize("week", [odd_week, wide_week, empty_week], ids=lambda week: str(week.__name__))
def test_odd_weeks_look_right(chromium: Any, tmp_path: Path, week: Callable[[], dict[str, pl.DataFrame]]) -> None:
    path = tmp_path / "odd.html"
    path.write_text(html(page_of(week()), drawing_code()), encoding="utf-8")
    page, seen = opened(chromium, path, DESKTOP)
    assert seen.complaints == []
    assert_readable(page)
    resized(page, PHONE)
    assert_readable(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "jump"
    assert page.locator(".jump").bounding_box()["x"] >= 0
    page.context.close()


FITS = "() => [...document.querySelectorAll('.sheet')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"


def wide_whatif() -> Page:
    """What-ifs whose every column differs, under an autoscaler, of deployments with long and right-to-left names."""
    columns = frame("mart_scenarios", []).schema
    texts = {name for name, dtype in columns.items() if dtype == pl.String}
    flags = {name for name, dtype in columns.items() if dtype == pl.Boolean}
    rows = []
    for name in (LONG, RIGHT_TO_LEFT, "chat"):
        for n, scenario in enumerate(("today", "max_model_len=" + "9" * 100, "fp8")):
            figures = dict.fromkeys(set(columns) - texts - flags, 123456 * n + 7)
            shares = {column: 0.25 * n for column in columns if column.endswith("_ratio")}
            words = dict.fromkeys(texts - {"week", "swept_setting", "curve_measure"}, "served as it stands")
            told = {"deployment_id": name, "scenario_id": scenario, "outcome": "answered", "position": n}
            rows.append(figures | shares | dict.fromkeys(flags, True) | words | told | {"swept_value": None})
    return whatif_page(full_week(windows=2), WEEK, frame("mart_scenarios", rows), VERSIONS, ["kvledger whatif"])


def test_what_ifs_fit_without_scrolling_sideways(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "whatif.html"
    path.write_text(html(wide_whatif(), drawing_code()), encoding="utf-8")
    page, seen = opened(chromium, path, DESKTOP)
    assert seen.complaints == []
    for size in (DESKTOP, PHONE):
        resized(page, size)
        assert_readable(page)
        assert page.evaluate(FITS) == 0, size
    resized(page, PAPER)
    page.emulate_media(media="print")
    assert page.evaluate(FITS) == 0
    assert serious_findings(page) == []
    page.context.close()
