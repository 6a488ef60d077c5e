"""The review as the one JSON object of `kvledger review --json`: every figure unrounded."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import orjson

from reports.labels import COLUMNS, label
from reports.marts import ALL, Marts, only, rows, some

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        "decision": [_decision(tables, row) for row in decision.iter_rows(named=True) if row["deployment_id"] != ALL],
        "fleet": _fleet(tables, covered),
        "warnings": _said(tables, "warning"),
        "notes": _said(tables, "note"),
        "labels": {name: label(name, frame) for name, frame in sorted(tables.items())},
        "column_labels": COLUMNS,
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


def _decision(tables: Marts, row: dict[str, Any]) -> dict[str, Any]:
    ahead = some(tables, "mart_growth", deployment_id=row["deployment_id"])
    growth = {} if ahead is None else ahead.row(0, named=True)
    assumed = some(tables, "mart_assumed", deployment_id=row["deployment_id"])
    return {
        "deployment": row["deployment_id"],
        "gpus_needed": row["needed_gpus"],
        "gpus_low": row["low_gpus"],
        "gpus_high": row["high_gpus"],
        "gpus_now": row["now_gpus"],
        "binding": row["binding_demand"],
        "provenance": row["provenance"],
        "action": row["action_text"],
        "is_slo_reachable": row["is_slo_reachable"],
        "is_slo_assumed": row["is_slo_assumed"],
        "gpus_needed_last_week": row["previous_needed_gpus"],
        "cost_now_usd_per_hour": plain(row["now_cost_usd_per_hour"]),
        "cost_needed_usd_per_hour": plain(row["cost_usd_per_hour"]),
        "why": row["binding_text"],
        "slo": row["slo_floor_text"],
        "changed": row["change_text"],
        "confidence": row["confidence_text"],
        "assumed": None if assumed is None else assumed["assumed_text"][0],
        "ahead": growth.get("growth_text"),
        "run_out_date": plain(growth.get("run_out_date")),
        "order_by_date": plain(growth.get("order_by_date")),
        "actions": _actions(tables, row["deployment_id"]),
    }


def _actions(tables: Marts, deployment_id: str) -> list[dict[str, Any]]:
    """What is worth doing about a deployment, with what it saves and what it risks."""
    frame = some(tables, "mart_actions", deployment_id=deployment_id)
    listed = [] if frame is None else frame.sort("position").iter_rows(named=True)
    return [
        {
            "action": action["action_text"],
            "saving": action["saving_text"],
            "risk": action["risk_text"],
            "saving_gpus": action["saving_gpus"],
            "saving_usd_per_hour": plain(action["saving_usd_per_hour"]),
            "provenance": action["provenance"],
        }
        for action in listed
    ]


def _fleet(tables: Marts, covered: Mapping[str, Any]) -> dict[str, Any]:
    """GPUs and cost of all planned deployments together, and the share of requests that none of them serves."""
    total = only(tables, "mart_fleet", gpu_id=ALL)
    return {
        "gpus_needed": total["needed_gpus"],
        "gpus_now": total["now_gpus"],
        "gpus_needed_last_week": total["previous_needed_gpus"],
        "cost_now_usd_per_hour": plain(total["now_cost_usd_per_hour"]),
        "cost_needed_usd_per_hour": plain(total["cost_usd_per_hour"]),
        "unserved_requests": covered["unserved_requests"],
        "unserved_ratio": plain(covered["unserved_ratio"]),
    }


def _said(tables: Marts, severity: str) -> list[dict[str, Any]]:
    """Warnings (or notes) of the week, each with the deployment it is about; null for the whole week."""
    return [
        {
            "code": row["code"],
            "text": row["text"],
            "deployment": None if row["deployment_id"] == ALL else row["deployment_id"],
        }
        for row in rows(tables, "mart_warnings", severity=severity).iter_rows(named=True)
    ]


def _table(frame: pl.DataFrame) -> list[dict[str, Any]] | dict[str, int]:
    if frame.height > MOST_ROWS:
        return {"rows": frame.height}
    return [{name: plain(value) for name, value in row.items()} for row in frame.iter_rows(named=True)]
