"""Headless Chromium for the tests of the report: opens a file with the network cut, and measures what is readable."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DESKTOP, TABLET, PHONE = (1280, 800), (1024, 768), (390, 844)
PAPER = (703, 1032)
"""A4 inside the margins of the print style, at 96 px an inch."""

SERIOUS = ("serious", "critical")
"""Impacts of an axe finding that no page may have."""

FITTED = """() => [...document.querySelectorAll(".plot")].every((plot) =>
  Math.abs(plot.querySelector("svg").getAttribute("width") - plot.clientWidth) < 2)"""

OVERFLOWING = """() => [
  ...document.querySelectorAll("h1,h2,h3,p,dd,dt,figcaption,.action,.count span,.count b,summary,th,td"),
].filter((e) => e.offsetParent && !e.closest(".sheet,.rows"))
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
  .map((e) => e.textContent.slice(0, 60))"""

OUTSIDE = """() => [...document.querySelectorAll("body *")]
  .filter((e) => !e.closest(".sheet,.rows,.jump,svg,script,#vg-tooltip-element"))
  .filter((e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((e) => e.tagName + " " + e.className + " " + e.textContent.slice(0, 40))"""

WORDS = """const words = (svg) => [...svg.querySelectorAll("text")]
    .filter((t) => t.textContent.trim() && t.getAttribute("opacity") !== "0")
    .map((t) => [t.textContent, t.getBoundingClientRect()])
    .filter(([, box]) => box.width);
  const plots = [...document.querySelectorAll(".plot svg")];"""

CLIPPED_WORDS = f"""() => {{ {WORDS}
  return plots.flatMap((svg) => {{
    const whole = svg.getBoundingClientRect();
    return words(svg).filter(([, box]) => box.left < whole.left - 2 || box.right > whole.right + 2
      || box.top < whole.top - 2 || box.bottom > whole.bottom + 2).map(([text]) => text);
  }});
}}"""

OVERLAPPING_WORDS = f"""() => {{ {WORDS}
  return plots.flatMap((svg) => {{
    const found = words(svg);
    return found.flatMap(([a, p], n) => found.slice(n + 1)
      .filter(([, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2)
      .filter(([, q]) => Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 3)
      .map(([b]) => `${{a}} × ${{b}}`));
  }});
}}"""


class Seen:
    """What a page did that it must not do."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []


@contextmanager
def headless() -> Iterator[Any]:
    """The installed Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def opened(chromium: Any, file: Path, size: tuple[int, int], scheme: str = "light") -> tuple[Any, Seen]:
    """The page of `file`, its charts drawn, with everything but itself blocked and counted."""
    seen = Seen()
    context = chromium.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, offline=True, accept_downloads=True
    )
    page = context.new_page()
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-charts=drawn]", state="attached", timeout=60_000)
    return page, seen


def resized(page: Any, size: tuple[int, int]) -> None:
    """The page at `size`, once its charts have taken their new width."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_function(FITTED, timeout=60_000)


def serious_findings(page: Any, *rules: str) -> list[str]:
    """What axe-core calls serious or critical by `rules` (default: all of them), rule and element.

    Marks inside charts are left out: they are hidden from readers of the screen.
    """
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('.plot svg').forEach((svg) => svg.replaceChildren())")
    chosen = {"runOnly": {"type": "rule", "values": list(rules)}} if rules else {}
    found = Axe().run(page, options={"resultTypes": ["violations"], **chosen}).response["violations"]
    return [f"{v['id']}: {node['html'][:120]}" for v in found if v["impact"] in SERIOUS for node in v["nodes"]]


def assert_readable(page: Any) -> None:
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CLIPPED_WORDS) == []
    assert page.evaluate(OVERLAPPING_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
