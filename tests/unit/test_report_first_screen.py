"""The first screen says what is true: no promise that cannot be kept, no traffic that is not there."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from report_week import decision, drawing_code, empty_week, frame, full_page, full_week, page_of

from reports.html import html
from reports.markdown import markdown, tables_markdown
from reports.page import Page
from reports.printed import NBSP
from reports.review import fleet_line
from reports.tables import demands
from reports.terminal import decision_lines

NEVER = "no number of replicas meets the objective"
FLOOR = "no number of replicas meets ttft_p95_s = 0.1: on an idle replica TTFT p95 is 2 s"


def everywhere(page: Page) -> list[str]:
    """The top of the HTML, of the Markdown and of the terminal."""
    top = html(page, drawing_code()).split("<nav", 1)[0].replace(NBSP, " ")
    return [top, markdown(page, "t.md"), "\n".join(decision_lines(page))]


def week_of(*rows: dict[str, Any], **coverage: Any) -> dict[str, pl.DataFrame]:
    tables = empty_week()
    tables["mart_decision"] = frame("mart_decision", rows)
    tables["mart_coverage"] = frame("mart_coverage", [{"requests": 100, "unserved_ratio": 0.0} | coverage])
    return tables


def test_an_objective_that_cannot_be_met_is_the_decision() -> None:
    page = page_of(week_of(decision("chat", 4, 4, NEVER, is_slo_reachable=False, slo_floor_text=FLOOR)))
    assert page.headline[0].text == f"{NEVER}."
    (verdict,) = page.verdicts
    assert verdict.kind == "unmet"
    assert "for KV and compute alone" in verdict.interval
    for text in everywhere(page):
        assert text.count(NEVER) >= 1
        assert "on an idle replica" in text
        assert "keep" not in text.replace("kept", "").lower().split("</style>")[-1]


def test_what_cannot_be_met_stands_before_what_may_stay() -> None:
    page = page_of(week_of(
        decision("a", 4, 4, "keep"), decision("b", 2, 4, "could release 2 GPUs"),
        decision("c", 4, 4, NEVER, is_slo_reachable=False), decision("d", 6, 4, "add 2 GPUs"),
        decision("e", 1, 4, "no traffic this week"),
    ))  # fmt: skip
    assert [verdict.name for verdict in page.verdicts] == ["d", "c", "b", "a", "e"]
    assert [part.name for part in page.headline] == ["d", "c", ""]


def test_a_week_without_usable_traffic_says_so() -> None:
    page = page_of(week_of(decision("chat", 1, 4, "no usable traffic this week", usable_requests=0)))
    assert page.verdicts[0].kind == "idle"
    assert page.verdicts[0].facts == ()
    for text in everywhere(page):
        assert "no usable traffic this week" in text
    page = page_of(week_of(decision("chat", 1, 4, "no traffic this week")))
    assert "nothing to decide" in page.headline[0].text


@pytest.mark.parametrize(("ratio", "words"), [(1.0, "100 %"), (0.123, "12 %")])
def test_requests_that_nobody_serves_stand_first(ratio: float, words: str) -> None:
    idle = decision("chat", 1, 4, "no traffic this week")
    page = page_of(week_of(idle, unserved_ratio=ratio))
    said = f"{words} of the requests are served by no deployment."
    assert page.headline[0].text.replace(NBSP, " ") == said
    for text in everywhere(page):
        assert said in text.replace(NBSP, " ")


def test_a_handful_of_unserved_requests_is_no_headline() -> None:
    page = page_of(week_of(decision("chat", 4, 4, "keep"), unserved_ratio=0.001))
    assert [part.text for part in page.headline] == ["keep."]


def test_last_weeks_gpus_and_kv_time_stand_beside_this_weeks() -> None:
    verdict = full_page().verdicts[0]
    assert verdict.before == "18 last week"
    changed = dict(verdict.reasons)["Changed"].replace(NBSP, " ")
    assert changed.startswith("18 → 22 GPUs needed; KV·time +31 %; ")


def test_headroom_is_on_the_scale_of_what_was_asked() -> None:
    page = page_of(week_of(decision("chat", 4, 4, "keep", headroom_factor=0.23, binding_demand="kv")))
    assert dict(page.verdicts[0].facts)["Peak headroom"].replace(NBSP, " ") == "23 % (asked 30 %)"
    page = page_of(week_of(decision("chat", 4, 4, "keep", binding_demand="latency")))
    assert "Peak headroom" not in dict(page.verdicts[0].facts)


@pytest.mark.parametrize(
    ("factor", "demand", "words"),
    [(12.04, "compute", "nothing yet, compute first"), (1.5, "kv", "KV memory"), (12.0, "latency", "latency"),
     (None, "kv", "KV memory")],
)  # fmt: skip
def test_what_binds_does_not_bind_yet_where_the_headroom_is_ample(
    factor: float | None, demand: str, words: str
) -> None:
    page = page_of(week_of(decision("chat", 2, 4, "keep", headroom_factor=factor, binding_demand=demand)))
    assert dict(page.verdicts[0].facts)["Binds"] == words


def test_notes_stay_off_the_first_screen_and_in_the_tables() -> None:
    page = full_page()
    assert not [line for line in page.warnings if "fullest was judged" in line]
    assert "The fullest was judged." in tables_markdown(page)


def test_what_the_decision_says_is_not_said_twice_and_unserved_requests_stand_first() -> None:
    tables = week_of(decision("chat", 4, 4, NEVER, is_slo_reachable=False, slo_floor_text=FLOOR))
    tables["mart_warnings"] = frame("mart_warnings", [
        {"deployment_id": about, "code": code, "severity": "warning", "text": code}
        for about, code in (("(all)", "coverage_low"), ("chat", "slo_unreachable"), ("chat", "no_interval"),
                            ("(all)", "unserved_models"), ("chat", "prompts_too_long"))
    ])  # fmt: skip
    page = page_of(tables)
    assert page.warnings == ("Unserved_models", "Coverage_low", "chat: prompts_too_long")
    assert r"slo\_unreachable" in tables_markdown(page)


def test_many_deployments_begin_with_the_table_of_all() -> None:
    rows = [decision(f"d{n:02}", 8, 8, "keep") for n in range(12)]
    text = html(page_of(week_of(*rows)), drawing_code())
    assert text.index("GPUs needed against GPUs now") < text.index('<article class="verdict')
    assert text.count("GPUs needed against GPUs now") == 1
    few = html(page_of(week_of(*rows[:3])), drawing_code())
    assert few.index("GPUs needed against GPUs now") > few.index('<article class="verdict')


def test_the_headline_counts_the_urgent_that_it_does_not_name() -> None:
    rows = [decision(f"d{n:02}", 9, 8, "add 1 GPU") for n in range(7)]
    rows += [decision("x", 8, 8, "no number of replicas meets the objective"), decision("y", 8, 8, "keep")]
    said = [part.text for part in page_of(week_of(*rows)).headline]
    assert said == ["add 1 GPU."] * 4 + ["3 more need GPUs.", "1 more cannot keep its objectives.",
                                         "The others are below."]  # fmt: skip


def test_one_gpu_is_no_plural() -> None:
    lines = "\n".join(decision_lines(page_of(week_of(decision("chat", 1, 1, "keep", low_gpus=1, high_gpus=1)))))
    assert "1 GPU needed" in lines
    assert "1 GPUs" not in lines


def test_the_fleet_is_summed_where_there_are_several() -> None:
    assert full_page().fleet.replace(NBSP, " ") == "All 3 deployments: 40 GPUs now, 42 needed (30 last week)"
    assert page_of(week_of(decision("chat", 1, 1, "keep"))).fleet == ""
    pair = frame("mart_fleet", [{"gpu_id": "(all)", "deployments": 2, "now_gpus": 3, "needed_gpus": 4}])
    assert fleet_line({"mart_fleet": pair}).replace(NBSP, " ") == "Both deployments: 3 GPUs now, 4 needed"


def test_what_binds_among_equals_is_told_under_the_table() -> None:
    tie = decision("chat", 2, 2, "keep", latency_replicas=1.0, compute_replicas=0.13, binding_demand="compute")
    assert "of those that tie, KV memory or compute, the larger, before latency" in demands(week_of(tie), "chat").note


def test_labels_are_explained_where_they_are_met() -> None:
    for text in everywhere(full_page())[:2]:
        for label in ("measured: ", "calibrated: ", "modelled: ", "assumed: "):
            assert label in text


def test_every_table_that_counts_says_what() -> None:
    counting = {"Lengths in tokens", "Arrivals by counting window", "Latency", "Gaps inside sessions", "Sessions",
                "KV·time by deployment and phase", "KV spent on failed attempts", "Records read, by file",
                "From the requests of the headline to what the plan counts"}  # fmt: skip
    tables = [table for c in full_page().chapters for s in c.sections for table in s.tables]
    assert counting <= {table.title for table in tables}
    for table in tables:
        if table.title in counting:
            assert "count" in table.note.lower(), table.title


def test_the_residency_caption_says_how_many_times_are_logged() -> None:
    from reports.charts.residency import residency_chart

    tables = full_week(windows=2)
    tables["mart_residency"] = tables["mart_residency"].with_columns(provenance=pl.lit("modelled"))
    timed = pl.when(pl.col("measure") == "ttft").then(3740).otherwise(209_001)
    tables["mart_latency"] = tables["mart_latency"].with_columns(timed_requests=timed.cast(pl.Int64))
    chart = residency_chart(tables, "chat", "x")
    assert chart is not None
    assert "to the first token of 3,740 of 211,204 requests" in chart.note
    tables["mart_latency"] = tables["mart_latency"].clear()
    chart = residency_chart(tables, "chat", "x")
    assert chart is not None
    assert "the log has none" in chart.note


def test_the_first_screen_says_the_main_cause_and_when_gpus_run_out() -> None:
    reasons = {verdict.name: dict(verdict.reasons) for verdict in full_page().verdicts}
    assert reasons["coding-agent"]["Changed"].endswith("mainly request rate +2.31, lengths +1.90 GPUs before rounding")
    assert reasons["coding-agent"]["Ahead"] == "Today's GPUs run out on 2026-12-14; order by 2026-11-14"
    assert "largest" not in reasons["coding-agent"]["Changed"]
    assert reasons["chat"]["Ahead"].startswith("No forecast")


def test_actions_are_said_with_saving_and_risk_on_every_first_screen() -> None:
    (verdict,) = (verdict for verdict in full_page().verdicts if verdict.actions)
    assert verdict.name == "coding-agent"
    assert verdict.actions[:2] == (
        "Add 6 GPUs: costs $17.94/h; risk: until then 5 % headroom at the peak, 30 % asked",
        "Set max_model_len=65536: frees 3 GPUs, saves $8.97/h; risk: 0.20 % of turns refused or lost",
    )
    assert verdict.actions[2].endswith(": risk: computes 18 GPU·h anew a week")
    for text in everywhere(full_page()):
        assert "frees 3 GPUs, saves $8.97/h" in text


def test_what_ifs_that_were_asked_stand_in_the_review() -> None:
    today = {"deployment_id": "chat", "scenario_id": "today", "outcome": "answered", "position": 0, "needed_gpus": 8,
             "settings_text": ""}  # fmt: skip
    asked = today | {"scenario_id": "max_model_len=65536", "settings_text": "max_model_len=65536", "position": 1,
                     "needed_gpus": 5, "needed_change_gpus": -3}  # fmt: skip
    for rows, is_there in (([today, asked], True), ([today], False)):
        judged = [{"deployment_id": "chat", "scenario_id": row["scenario_id"], "position": 1, "is_worth_doing": False,
                   "against_text": "refuses or cuts 64 % of the requests", "loss_bound_ratio": 0.01}
                  for row in rows[1:]]  # fmt: skip
        tables = full_week(windows=2) | {
            "mart_scenarios": frame("mart_scenarios", rows),
            "mart_scenario_actions": frame("mart_scenario_actions", judged),
        }
        text = tables_markdown(page_of(tables))
        assert ("### Today beside each scenario" in text) is is_there
        assert ("−3 → 5" in text) is is_there
        assert ("| no | refuses or cuts 64 % of the requests |" in text) is is_there
        assert ("refuses or cuts at most 1.0 % of the requests" in text) is is_there


def test_a_count_that_changed_says_why() -> None:
    tables = dict(full_week(windows=2))
    why = "KV memory asks 7.2 replicas after 6.9"
    tables["mart_decision"] = tables["mart_decision"].with_columns(pl.lit(why).alias("count_text"))
    assert f"needed ({why})" in markdown(page_of(tables), "t.md")
