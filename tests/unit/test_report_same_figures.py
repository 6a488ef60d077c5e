"""HTML, Markdown, terminal and JSON say the same: each printed figure is the JSON's column, printed."""

from __future__ import annotations

import html as entities
import json
import re
from datetime import date
from typing import Any

import pytest
from report_week import WEEK, full_html, full_page, full_week

from reports import printed
from reports.markdown import escaped, tables_markdown
from reports.summary import json_text, summary
from reports.terminal import decision_lines

FIGURES = [
    ("mart_decision", "needed_gpus", printed.whole),
    ("mart_decision", "now_gpus", printed.whole),
    ("mart_decision", "kv_replicas", printed.figure),
    ("mart_decision", "headroom_factor", printed.percent),
    ("mart_decision", "residency_peak_bytes", printed.gib),
    ("mart_decision", "cost_usd_per_hour", printed.usd_per_hour),
    ("mart_decision", "step_s", printed.seconds),
    ("mart_lengths", "length_p50_tokens", printed.whole),
    ("mart_lengths", "length_p99_tokens", printed.whole),
    ("mart_lengths", "length_total_tokens", printed.compact),
    ("mart_lengths", "p50_change_factor", printed.change),
    ("mart_arrivals", "arrivals_peak_requests", printed.whole),
    ("mart_arrivals", "dispersion_factor", printed.figure),
    ("mart_kv_time", "share_ratio", printed.percent),
    ("mart_failed_kv", "failed_kv_time_byte_s", printed.gib_s),
    ("mart_tool_waits", "wait_p99_s", printed.seconds),
    ("mart_latency", "latency_all_p95_s", printed.seconds),
    ("mart_latency", "latency_all_p50_s", printed.seconds),
    ("mart_latency", "attainment_ratio", printed.percent),
    ("mart_sessions", "prompt_max_p50_tokens", printed.whole),
    ("mart_data_quality", "loaded_rows", printed.whole),
    ("mart_decision", "previous_needed_gpus", printed.whole),
    ("mart_decision", "kv_time_change_factor", printed.change),
    ("mart_fleet", "needed_gpus", printed.whole),
    ("mart_counts", "usable_requests", printed.whole),
    ("mart_data_quality", "unknown_session_ratio", printed.percent),
    ("mart_week_changes", "demand_part_gpus", printed.figure),
    ("mart_week_changes", "kv_time_part_byte_s", printed.gib_s),
    ("mart_forecasts", "value_gpus", printed.figure),
    ("mart_forecasts", "fact_gpus", printed.figure),
    ("mart_growth", "run_out_date", lambda value: printed.day(value and date.fromisoformat(value))),
    ("mart_output_ends", "share_ratio", printed.percent),
    ("mart_output_ends", "output_max_tokens", printed.whole),
    ("mart_tool_wait_policies", "saving_gpu_s", printed.gpu_hours),
    ("mart_tool_wait_policies", "break_even_s", printed.seconds),
]


@pytest.fixture(scope="module")
def reviewed() -> dict[str, Any]:
    return json.loads(json_text(summary(full_week(), WEEK, "review.html")))  # type: ignore[no-any-return]


def cells_of_html() -> set[str]:
    return {entities.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", full_html())}


def cells_of_markdown() -> set[str]:
    lines = (line for line in tables_markdown(full_page()).splitlines() if line.startswith("| "))
    return {cell.strip() for line in lines for cell in re.split(r"(?<!\\)\|", line)}


@pytest.mark.parametrize(("table", "column", "show"), FIGURES, ids=[f"{t}.{c}" for t, c, _ in FIGURES])
def test_a_column_of_the_json_is_printed_in_both(reviewed: dict[str, Any], table: str, column: str, show: Any) -> None:
    values = {row[column] for row in reviewed["tables"][table] if row.get("tenant", "(all)") == "(all)"}
    assert len(values - {None}) >= 1
    wanted = {show(value) for value in values}
    assert wanted <= cells_of_html()
    assert {escaped(text) for text in wanted} <= cells_of_markdown()


def test_html_and_markdown_print_the_same_tables() -> None:
    html_cells, markdown_cells = cells_of_html(), cells_of_markdown()
    for chapter in full_page().chapters:
        for section in chapter.sections:
            for table in section.tables:
                for row in table.rows:
                    assert set(row) <= html_cells, table.title
                    assert {escaped(cell) for cell in row} - {""} <= markdown_cells, table.title


def test_first_screen_is_the_decision_of_the_json(reviewed: dict[str, Any]) -> None:
    by_name = {verdict.name: verdict for verdict in full_page().verdicts}
    lines = "\n".join(decision_lines(full_page()))
    for row in reviewed["decision"]:
        verdict = by_name[row["deployment"]]
        assert verdict.needed == printed.whole(row["gpus_needed"])
        assert verdict.now == printed.whole(row["gpus_now"])
        ends = printed.interval(row["gpus_low"], row["gpus_high"])
        assert verdict.interval == (ends if row["gpus_low"] is None else f"interval {ends}")
        assert f"{row['gpus_needed']} GPUs needed ({verdict.interval}), {row['gpus_now']} now" in lines
        assert ends in cells_of_html()
        assert ends in cells_of_markdown()
        assert verdict.action == row["action"]
        assert ("Why", printed.sentence(row["why"])) in verdict.reasons


def test_charts_hold_the_figures_of_the_marts(reviewed: dict[str, Any]) -> None:
    """Six digits of what the mart has, only the unit changed."""
    page = full_page()
    charts = {chart.chart_id: chart for c in page.chapters for s in c.sections for chart in s.charts}
    latency = charts["deployment-0-latency"].rows
    rows = [row for row in reviewed["tables"]["mart_latency"] if row["deployment_id"] == "coding-agent"]
    for kind, column in (("answered", "latency_p95_s"), ("all, failures as misses", "latency_all_p95_s")):
        assert sorted(latency.filter(kind=kind)["latency_p95_s"]) == sorted(row[column] for row in rows)
    held = charts["deployment-0-tenants"].rows.filter(holder="tenant-00")
    tenant = [
        row for row in full_week()["mart_kv_time"].iter_rows(named=True)
        if row["deployment_id"] == "coding-agent" and row["tenant"] == "tenant-00" and row["phase"] != "(all)"
    ]  # fmt: skip
    assert sorted(held["gib_s"]) == pytest.approx(sorted(row["kv_time_byte_s"] / 2**30 for row in tenant), rel=1e-12)


def test_actions_of_the_json_are_those_of_the_first_screen(reviewed: dict[str, Any]) -> None:
    (row,) = (row for row in reviewed["decision"] if row["actions"])
    (verdict,) = (verdict for verdict in full_page().verdicts if verdict.actions)
    assert row["deployment"] == verdict.name
    assert row["run_out_date"] == "2026-12-14"
    for action, words in zip(row["actions"], verdict.actions, strict=True):
        assert all(part in words for part in (action["saving"], action["risk"]) if part)
        assert action["provenance"] == "modelled"
