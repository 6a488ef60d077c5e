"""The label of every figure in the JSON: where it comes from, for tables whose rows do not say it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MEASURED, MODELLED, GIVEN = "measured", "modelled", "given"
ROW = "row"
"""The row's own column `provenance` is the label of its figures."""
SOURCE = "source"
"""The row's column `source` says it: logged is measured, modelled is modelled."""

FITTED = ("dist_length_tails", "dist_group_length_tails")
"""Distributions that are fitted, not counted."""

PLANNED: dict[str, str] = {
    "mart_action": "mart_decision",
    "mart_binding": "mart_decision",
    "mart_fleet": "mart_decision",
    "mart_changes": "mart_kv_time",
    "mart_failed_kv": "mart_kv_time",
    "mart_growth": "mart_forecasts",
    "mart_assumed": "mart_assumptions",
    "mart_data_warnings": "mart_warnings",
    "mart_plan_warnings": "mart_warnings",
    "mart_plan_notes": "mart_warnings",
}
"""Mart without labels of its own -> the table whose rows (same week and deployment) have them, or say it in words."""

COLUMNS: dict[str, dict[str, str]] = {
    "mart_tool_waits": {"tool_wait_kv_time_byte_s": MODELLED, "tool_wait_kv_time_factor": MODELLED}
}
"""Table -> columns whose label is another than that of the rest."""


def label(name: str, frame: pl.DataFrame) -> str:
    """`row`, `source`, the name of the table that has the labels, or one label for the whole of table `name`.

    `given`: from the fleet file and the catalog.
    """
    if "provenance" in frame.columns:
        return ROW
    if name == "mart_latency":
        return SOURCE
    if name.startswith("dim_"):
        return GIVEN
    return PLANNED.get(name, MODELLED if name in FITTED else MEASURED)
