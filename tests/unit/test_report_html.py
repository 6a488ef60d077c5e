"""The HTML file: whole in itself, nothing outside, and no name from a log ever becomes markup or script."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import pytest
from report_week import (
    CLOSING,
    EXPRESSION,
    HOSTILE,
    LONG,
    RIGHT_TO_LEFT,
    drawing_code,
    empty_week,
    full_html,
    full_page,
    page_of,
)

from reports.bundle import offline
from reports.html import html, index_html

LARGEST_BYTES = 3_000_000
IDENTIFIERS = ("http://www.w3.org/", "https://vega.github.io/schema/")


class Outline(HTMLParser):
    """Elements with attributes, texts of scripts, headings and visible text of a file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br", "input"):
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self._open and self._open[-1] != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def outline() -> Outline:
    return Outline(full_html())


def test_is_small_enough_and_well_nested(outline: Outline) -> None:
    assert len(full_html().encode()) < LARGEST_BYTES
    assert outline._open == []


def test_names_no_outside_address() -> None:
    for found in re.finditer(r"(?i)(https?|wss?|ftp)://[^\s\"'`<>)]*", full_html()):
        assert found.group().startswith(IDENTIFIERS), found.group()
    assert "//cdn" not in full_html()


def test_takes_the_addresses_out_of_the_bundle_and_leaves_identifiers() -> None:
    code = 'a("https://vega.github.io/editor/");b="https://vega.github.io/schema/vega/v6.json";c("http://www.w3.org/2000/svg")'
    assert offline(code) == 'a("");b="https://vega.github.io/schema/vega/v6.json";c("http://www.w3.org/2000/svg")'


def test_loads_nothing(outline: Outline) -> None:
    tags = {tag for tag, _ in outline.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in outline.elements:
        assert "src" not in attributes, tag
        assert not [name for name in attributes if name.startswith("on")], attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_policy_allows_exactly_our_two_scripts(outline: Outline) -> None:
    policy = next(a["content"] for t, a in outline.elements if t == "meta" and "http-equiv" in a) or ""
    running = [text for kind, text in outline.scripts if kind != "application/json"]
    assert len(running) == 2
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_hostile_names_are_text(outline: Outline) -> None:
    text = "".join(outline.text)
    for name in (HOSTILE, CLOSING, EXPRESSION):
        assert name in text
    assert HOSTILE not in full_html()
    assert CLOSING not in full_html()
    data = [json.loads(words) for kind, words in outline.scripts if kind == "application/json"]
    holders = {row[0] for chart in data if "rows" in chart for row in chart["rows"] if isinstance(row[0], str)}
    assert {HOSTILE, CLOSING, LONG, RIGHT_TO_LEFT} <= holders


def test_expressions_of_charts_hold_no_names(outline: Outline) -> None:
    for kind, words in outline.scripts:
        if kind == "application/json" and '"spec"' in words:
            spec = json.dumps(json.loads(words)["spec"])
            assert "evil" not in spec
            assert "$schema" not in spec


def test_every_chart_has_title_alternative_text_source_and_data_table(outline: Outline) -> None:
    page = full_page()
    charts = [chart for chapter in page.chapters for section in chapter.sections for chart in section.charts]
    assert len(charts) == 3 * 15 + 3 + 1
    for chart in charts:
        assert chart.title
        assert len(chart.alt) > 20
        assert chart.source.startswith("mart_")
        assert set(chart.headings) == set(chart.rows.columns)
    pictures = [a for t, a in outline.elements if t == "div" and a.get("role") == "img"]
    assert len(pictures) == len(charts) + 3
    assert all(a.get("aria-label") for a in pictures)
    assert sum(t == "details" and a.get("class") == "data" for t, a in outline.elements) == len(charts)


def test_headings_go_down_one_level_at_a_time(outline: Outline) -> None:
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_each_id_and_link_target_is_there_once(outline: Outline) -> None:
    ids = [a["id"] for _, a in outline.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {(a["href"] or "")[1:] for t, a in outline.elements if t == "a"} <= set(ids)


def test_the_urgent_deployment_comes_first() -> None:
    page = full_page()
    assert [(v.name, v.action) for v in page.verdicts] == [
        ("coding-agent", "add 6 GPUs"),
        ("chat", "could release 4 GPUs"),
        (HOSTILE, "keep"),
        ("idle", "no traffic this week"),
    ]
    assert page.headline[0].name == "coding-agent"


def test_an_empty_week_says_that_there_is_nothing_to_decide() -> None:
    text = " ".join("".join(Outline(html(page_of(empty_week()), drawing_code())).text).split())
    assert "nothing to decide" in text
    assert "No warnings." in text


def test_many_deployments_name_only_the_urgent_ones() -> None:
    from report_week import decision, frame

    tables = empty_week()
    rows = [decision(f"d{n:02}", 8 + (n % 2), 8, "add 1 GPUs" if n % 2 else "keep") for n in range(40)]
    tables["mart_decision"] = frame("mart_decision", rows)
    page = page_of(tables)
    assert len(page.verdicts) == 40
    assert [part.name for part in page.headline] == ["d01", "d03", "d05", "d07", "", ""]
    assert 'class="many"' in html(page, "")


def test_index_lists_weeks_and_escapes_their_decisions() -> None:
    listed = Outline(index_html(["2026-W47", "2026-W46"], {"2026-W47": f"{HOSTILE}: keep"}))
    links = [a["href"] for t, a in listed.elements if t == "a"]
    assert links == ["week=2026-W47/review.html", "week=2026-W46/review.html"]
    assert f"{HOSTILE}: keep" in "".join(listed.text)
    assert listed.scripts == []
