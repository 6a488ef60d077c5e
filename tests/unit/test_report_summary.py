"""The JSON object of a review: its contract, and nothing JSON does not know."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from report_week import HOSTILE, RUN_ID, WEEK, decision, empty_week, frame, full_week

from reports.labels import COLUMNS
from reports.marts import rows
from reports.summary import MOST_ROWS, json_text, plain, summary
from transforms.errors import DataError


def test_has_the_keys_of_the_contract() -> None:
    made = json.loads(json_text(summary(full_week(), WEEK, "home/review.html")))
    contract = ["run_id", "week", "coverage", "requests", "decision", "warnings", "tables", "report"]
    assert [key for key in made if key in contract] == contract
    assert made["run_id"] == RUN_ID
    assert made["requests"] == 412_332
    assert made["coverage"] == {
        "from": "2026-11-16T00:00:00Z", "to": "2026-11-23T00:00:00Z", "covered_s": 604_800.0, "covered_ratio": 1.0,
    }  # fmt: skip
    assert dict(list(made["decision"][1].items())[:7]) == {
        "deployment": "coding-agent", "gpus_needed": 22, "gpus_low": 20, "gpus_high": 26, "gpus_now": 16,
        "binding": "kv", "provenance": "modelled",
    }  # fmt: skip
    assert made["report"] == "home/review.html"


def test_a_decision_says_what_to_do_what_it_costs_and_whether_the_objective_can_be_met() -> None:
    tables = full_week()
    floor = "no number of replicas meets ttft_p95_s = 0.1"
    tables["mart_decision"] = frame("mart_decision", [
        decision("chat", 6, 4, "add 2 GPUs; even then no number of replicas meets the objective",
                 is_slo_reachable=False, slo_floor_text=floor),
    ])  # fmt: skip
    (made,) = summary(tables, WEEK, "")["decision"]
    assert made["action"].endswith("no number of replicas meets the objective")
    assert made["is_slo_reachable"] is False
    assert made["slo"] == floor
    assert made["gpus_needed_last_week"] == 2
    assert (made["cost_now_usd_per_hour"], made["cost_needed_usd_per_hour"]) == (4 * 2.99, 6 * 2.99)
    assert made["why"].startswith("9 replicas for KV memory")


def test_warnings_name_their_deployment_and_notes_stand_apart() -> None:
    made = summary(full_week(), WEEK, "")
    assert [(w["code"], w["deployment"]) for w in made["warnings"]] == [
        ("stamps_in_steps", None), ("no_interval", HOSTILE),
    ]  # fmt: skip
    assert made["notes"] == [{"code": "few_requests", "text": "The fullest was judged.", "deployment": "chat"}]


def test_the_fleet_is_summed_and_the_unserved_share_is_there() -> None:
    assert summary(full_week(), WEEK, "")["fleet"] == {
        "gpus_needed": 42, "gpus_now": 40, "gpus_needed_last_week": 30, "cost_now_usd_per_hour": None,
        "cost_needed_usd_per_hour": None, "unserved_requests": 412, "unserved_ratio": 0.001,
    }  # fmt: skip


def test_large_tables_are_counted_not_listed() -> None:
    tables = full_week()
    made = summary(tables, WEEK, "")
    assert tables["mart_residency"].height > MOST_ROWS
    assert made["tables"]["mart_residency"] == {"rows": tables["mart_residency"].height}
    assert len(made["tables"]["mart_arrival_windows"]) == tables["mart_arrival_windows"].height


def test_exactly_at_the_limit_rows_are_listed() -> None:
    made = summary(empty_week() | {"dist_x": pl.DataFrame({"n": range(MOST_ROWS)})}, WEEK, "")
    assert len(made["tables"]["dist_x"]) == MOST_ROWS


def test_an_empty_week_is_still_an_object() -> None:
    made = json.loads(json_text(summary(empty_week(), WEEK, "")))
    assert made["decision"] == []
    assert made["run_id"] is None
    assert made["requests"] == 0
    assert made["coverage"]["from"] is None


def test_no_nan_no_infinity() -> None:
    tables = empty_week()
    tables["mart_sessions"] = frame("mart_sessions", [
        {"deployment_id": HOSTILE, "turns_mean_requests": math.nan, "duration_p50_s": math.inf}
    ])  # fmt: skip
    made = json.loads(json_text(summary(tables, WEEK, "")), parse_constant=pytest.fail)
    assert made["tables"]["mart_sessions"][0]["turns_mean_requests"] is None
    assert made["tables"]["mart_sessions"][0]["duration_p50_s"] is None


@pytest.mark.parametrize(
    "moment",
    [datetime(2026, 11, 16, 5), datetime(2026, 11, 16, 5, tzinfo=UTC),  # noqa: DTZ001
     datetime(2026, 11, 16, 7, tzinfo=timezone(timedelta(hours=2)))],
)  # fmt: skip
def test_moments_are_utc(moment: datetime) -> None:
    assert plain(moment) == "2026-11-16T05:00:00Z"


def test_a_missing_table_is_named() -> None:
    with pytest.raises(DataError, match="mart_decision"):
        rows({}, "mart_decision")


def test_every_figure_has_a_label() -> None:
    made = summary(full_week(windows=12), WEEK, "review.html")
    labels, known = made["labels"], {"measured", "modelled", "given", "row", "source"}
    assert set(labels) == set(made["tables"])
    for name, label in labels.items():
        assert label in known or label in labels, name
        if label == "row":
            assert all("provenance" in row for row in made["tables"][name]), name
    assert labels["mart_lengths"] == "measured"
    assert labels["mart_fleet"] == "mart_decision"
    assert labels[labels["mart_fleet"]] == "row"
    for name, columns in COLUMNS.items():
        assert set(columns) <= set(full_week()[name].columns)
