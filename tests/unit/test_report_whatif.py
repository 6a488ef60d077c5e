"""The tables of what-ifs: columns that no scenario changes are left out, named, and one click away."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from report_week import RUN_ID, frame, full_week

from reports.whatif import headlines, whatif_page
from reports.whatif_tables import first_table
from reports.whatif_terminal import whatif_lines


def scenario(name: str, **changed: Any) -> dict[str, Any]:
    """A row of mart_scenarios with the figures of today but those in `changed`, differences beside them."""
    base = {"needed_gpus": 32, "cost_usd_per_hour": 86.08, "attainment_ratio": 0.96, "ttft_p95_s": 6.18,
            "tpot_p95_s": 0.0301, "rejected_requests": 625, "lost_requests": 0, "lost_output_tokens": 0}  # fmt: skip
    differences = {"needed_gpus": "needed_change_gpus", "cost_usd_per_hour": "cost_change_usd_per_hour",
                   "attainment_ratio": "attainment_change_ratio", "ttft_p95_s": "ttft_p95_change_s",
                   "tpot_p95_s": "tpot_p95_change_s", "rejected_requests": "rejected_change_requests",
                   "lost_requests": "lost_change_requests", "lost_output_tokens": "lost_change_tokens"}  # fmt: skip
    figures = base | changed
    return {"run_id": RUN_ID, "deployment_id": "chat", "scenario_id": name, "settings_text": name, "position": 1,
            "outcome": "answered", "verdict": "stable", "is_slo_reachable": True, "is_knee": False,
            "is_first_cut": False, "offered_requests": 1000, "fleet_gpus": 24,
            } | figures | {differences[key]: figures[key] - base[key] for key in base}  # fmt: skip


def rows_of(*scenarios: dict[str, Any]) -> pl.DataFrame:
    return frame("mart_scenarios", [scenario("today") | {"position": 0}, *scenarios])


def test_columns_that_no_scenario_changes_are_left_out_and_named() -> None:
    rows = rows_of(scenario("seqs", needed_gpus=28, ttft_p95_s=1.2), scenario("same"))
    table = first_table(rows, has_deployment=False)
    assert table.labels == ("Scenario", "GPUs run", "GPUs needed", "Cost an hour", "TTFT p95", "Outcome")
    assert table.note.startswith("As today in every scenario, so left out: In objective 96\u00a0%, TPOT p95 30.1")
    assert "Refused 625" in table.note
    whole = first_table(rows, has_deployment=False, is_whole=True)
    assert {"In objective", "Refused", "Tokens lost"} <= set(whole.labels)
    assert whole.note == ""


def test_nothing_is_left_out_where_no_scenario_ran() -> None:
    table = first_table(rows_of(scenario("tiny") | {"outcome": "does not start"}))
    assert "Refused" in table.labels
    assert table.note == ""


def test_the_gpus_that_run_stand_beside_those_needed() -> None:
    rows = rows_of(scenario("fp8", needed_gpus=28))
    for is_whole in (False, True):
        table = first_table(rows, has_deployment=False, is_whole=is_whole)
        assert table.labels[1:3] == ("GPUs run", "GPUs needed")
        assert [row[1:3] for row in table.rows] == [("24", "32"), ("24", "−4 → 28")]


def test_page_and_terminal_show_the_narrow_table_and_name_the_rest() -> None:
    rows = rows_of(scenario("seqs", needed_gpus=28))
    page = whatif_page(full_week(windows=2), "2026-W47", rows, {"kvledger": "0.1.0"}, ["kvledger whatif"])
    assert page.brief is not None
    assert len(page.brief.labels) < len(page.decisions.labels)
    lines = "\n".join(whatif_lines(page))
    assert "−4 → 28" in lines
    assert "so left out: In objective 96\u00a0%" in lines


@pytest.mark.parametrize(("points", "shown"), [(12, 12), (15, 3)])
def test_a_short_sweep_is_shown_whole_and_a_long_one_says_what_it_leaves_out(points: int, shown: int) -> None:
    swept = [scenario(f"n={n}") | {"swept_setting": "n", "swept_value": float(n), "is_knee": n == 5}
             for n in range(1, points + 1)]  # fmt: skip
    page = whatif_page(full_week(windows=2), "2026-W47", rows_of(*swept), {"kvledger": "0.1.0"}, ["kvledger whatif"])
    lines = whatif_lines(page)
    assert sum(line.startswith("  n=") for line in lines) == shown
    told = [line for line in lines if "left out here" in line]
    assert len(told) == (points > shown)
    assert all(
        line.startswith(f"{points - shown} points between left out here; all are in the report") for line in told
    )


def test_a_difference_too_small_to_print_is_none() -> None:
    rows = rows_of(scenario("seqs", ttft_p95_s=6.1804, tpot_p95_s=0.0302))
    table = first_table(rows, is_whole=True)
    cells = dict(zip(table.labels, table.rows[1], strict=True))
    assert cells["TTFT p95"] == "= 6.18\u00a0s"
    assert cells["TPOT p95"] == "+0.10\u00a0ms → 30.2\u00a0ms"
    assert "TTFT p95" not in first_table(rows).labels


def test_the_headline_names_the_scenario_worth_doing() -> None:
    judged = [{"deployment_id": "chat", "scenario_id": name, "position": n, "is_worth_doing": name == "fp8",
               "freed_text": "24 GPUs needed, not 32", "risk_text": "answers may change"}
              for n, name in enumerate(("seqs", "fp8"))]  # fmt: skip
    marts = {"mart_scenario_actions": frame("mart_scenario_actions", judged)}
    (said,) = headlines(marts, rows_of(scenario("seqs", needed_gpus=28), scenario("fp8", needed_gpus=24)))
    assert said.text == "fp8 is worth doing: 24 GPUs needed, not 32; risk: answers may change."
    (said,) = headlines(marts, rows_of(scenario("seqs", needed_gpus=28)))
    assert said.text.startswith("seqs needs 28 GPUs (−4)")
