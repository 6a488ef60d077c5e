"""The report of the sample, end to end: the warehouse's figures, printed, in a page a browser opens quietly."""

from __future__ import annotations

import html as entities
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from report_browser import DESKTOP, assert_readable, headless, opened

from reports import printed

KVLEDGER = Path(sys.executable).parent / "kvledger"
LARGEST_BYTES = 3_000_000
PRINTED = {
    "mart_decision": {
        "needed_gpus": printed.whole, "now_gpus": printed.whole, "headroom_factor": printed.percent,
        "kv_replicas": printed.figure, "compute_replicas": printed.figure,
        "residency_peak_bytes": printed.gib, "cost_usd_per_hour": printed.usd_per_hour,
    },
    "mart_lengths": {
        "requests": printed.whole, "length_p50_tokens": printed.whole, "length_p99_tokens": printed.whole,
        "length_max_tokens": printed.whole, "length_total_tokens": printed.compact,
    },
    "mart_arrivals": {"arrivals_peak_requests": printed.whole, "dispersion_factor": printed.figure},
    "mart_tool_waits": {"wait_p50_s": printed.seconds, "wait_p99_s": printed.seconds},
    "mart_latency": {"latency_p95_s": printed.seconds, "latency_all_p95_s": printed.seconds},
    "mart_failed_kv": {"failed_kv_time_byte_s": printed.gib_s},
    "mart_data_quality": {"read_rows": printed.whole, "loaded_rows": printed.whole, "rejected_rows": printed.whole},
}  # fmt: skip


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The object `kvledger review --json` prints for a hundredth of the sample, with the home it lies in."""
    folder = tmp_path_factory.mktemp("sample")
    for command in (["sample", "--scale", "0.01"], ["review", "--no-prefect", "--json"]):
        ran = subprocess.run([KVLEDGER, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
    made: dict[str, Any] = json.loads(ran.stdout)
    return made | {"folder": folder}


@pytest.fixture(scope="module")
def page(reviewed: dict[str, Any]) -> Path:
    return Path(reviewed["folder"]) / str(reviewed["report"])


def cells(page: Path) -> set[str]:
    found = re.findall(r"<td[^>]*>(.*?)</td>", page.read_text(encoding="utf-8"))
    return {entities.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in found}


def test_every_figure_is_the_warehouses_to_the_last_printed_digit(reviewed: dict[str, Any], page: Path) -> None:
    shown, text = cells(page), page.with_name("review-tables.md").read_text(encoding="utf-8")
    with duckdb.connect(str(reviewed["folder"] / "data/warehouse/kvledger.duckdb"), read_only=True) as warehouse:
        for table, columns in PRINTED.items():
            wanted = warehouse.table(table).filter(f"week = '{reviewed['week']}'").pl()
            if "deployment_id" in wanted.columns:
                wanted = wanted.filter(pl.col("deployment_id") != "(all)")
            assert wanted.height, table
            assert len(reviewed["tables"][table]) >= wanted.height
            for column, show in columns.items():
                for value in wanted[column]:
                    assert show(value) in shown, (table, column, value)
                    assert show(value).replace(printed.NBSP, " ") in text, (table, column, value)
    for row in reviewed["decision"]:
        ends = printed.interval(row["gpus_low"], row["gpus_high"])
        assert {ends} <= shown
        assert f"| {ends} |" in text


def test_the_first_screen_decides_every_deployment(reviewed: dict[str, Any], page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(reviewed["decision"]) == 3
    for row in reviewed["decision"]:
        assert f"<bdi>{row['deployment']}</bdi>: <b>" in text
    assert len(text.encode()) < LARGEST_BYTES


def test_tenants_are_hashes_everywhere(reviewed: dict[str, Any]) -> None:
    tenants = {row["tenant"] for row in reviewed["tables"]["mart_kv_time"]} - {"(all)", "(none)"}
    assert tenants
    assert all(re.fullmatch(r"[0-9a-f]{12,}", tenant) for tenant in tenants)


@pytest.mark.browser
def test_a_browser_opens_it_quietly(page: Path) -> None:
    with headless() as chromium:
        shown, seen = opened(chromium, page, DESKTOP)
        assert seen.requests == [page.as_uri()]
        assert seen.complaints == []
        assert_readable(shown)
        assert shown.locator(".plot svg").count() >= 3 * 9
        assert shown.evaluate(
            "[...document.querySelectorAll('.sheet')].every((e) => e.scrollWidth <= e.clientWidth + 1)"
        )
        last = shown.locator("#decision .verdict").last.bounding_box()
        assert last["y"] + last["height"] <= DESKTOP[1]
