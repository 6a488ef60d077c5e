"""The review as the one JSON object of `kvledger review --json`: every figure unrounded."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import orjson

from reports.marts import ALL, Marts, only, rows

if TYPE_CHECKING:
    import polars as pl

MOST_ROWS = 10_000
"""A table with more rows is only counted; the warehouse has them."""


def summary(tables: Marts, week: str, report: str) -> dict[str, Any]:
    """The machine contract of a review: `tables` are the week's rows by table name, `report` the path of the HTML."""
    covered = only(tables, "mart_coverage")
    decision = rows(tables, "mart_decision")
    return {
        "run_id": only(tables, "mart_decision")["run_id"],
        "week": week,
        "coverage": {
            "from": plain(covered["covered_from_at"]),
            "to": plain(covered["covered_to_at"]),
            "covered_s": plain(covered["covered_s"]),
            "covered_ratio": plain(covered["covered_ratio"]),
        },
        "requests": covered["requests"] or 0,
        "decision": [_decision(row) for row in decision.iter_rows(named=True) if row["deployment_id"] != ALL],
        "warnings": rows(tables, "mart_warnings").select("code", "text").to_dicts(),
        "tables": {name: _table(frame) for name, frame in sorted(tables.items())},
        "report": report,
    }


def json_text(document: dict[str, Any]) -> str:
    """`document` as indented JSON with a newline at its end."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def plain(value: Any) -> Any:
    """`value` as JSON has it: moments in ISO 8601 with a Z, no NaN or Infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return utc.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return [plain(item) for item in value] if isinstance(value, list) else value


def _decision(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "deployment": row["deployment_id"],
        "gpus_needed": row["needed_gpus"],
        "gpus_low": row["low_gpus"],
        "gpus_high": row["high_gpus"],
        "gpus_now": row["now_gpus"],
        "binding": row["binding_demand"],
        "provenance": row["provenance"],
    }


def _table(frame: pl.DataFrame) -> list[dict[str, Any]] | dict[str, int]:
    if frame.height > MOST_ROWS:
        return {"rows": frame.height}
    return [{name: plain(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
