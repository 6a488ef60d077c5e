"""The JSON object of a review: its contract, and nothing JSON does not know."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest
from report_week import HOSTILE, RUN_ID, WEEK, empty_week, frame, full_week

from reports.marts import rows
from reports.summary import MOST_ROWS, json_text, plain, summary
from transforms.errors import DataError


def test_has_the_keys_of_the_contract() -> None:
    made = json.loads(json_text(summary(full_week(), WEEK, "home/review.html")))
    assert list(made) == ["run_id", "week", "coverage", "requests", "decision", "warnings", "tables", "report"]
    assert made["run_id"] == RUN_ID
    assert made["requests"] == 412_332
    assert made["coverage"] == {
        "from": "2026-11-16T00:00:00Z", "to": "2026-11-23T00:00:00Z", "covered_s": 604_800.0, "covered_ratio": 1.0,
    }  # fmt: skip
    assert made["decision"][1] == {
        "deployment": "coding-agent", "gpus_needed": 22, "gpus_low": 20, "gpus_high": 26, "gpus_now": 16,
        "binding": "kv", "provenance": "modelled",
    }  # fmt: skip
    assert {"code", "text"} == set(made["warnings"][0])
    assert made["report"] == "home/review.html"


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
