"""What a plan reads of the weeks before its own: whether the last one has rows, and what each asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.planner.weeks.growth import week_after

if TYPE_CHECKING:
    import duckdb

LEAST_COVERED_RATIO = 0.5
"""Weeks of which less is covered say nothing about growth: which hours they lack decides what they seem to ask for."""


def week_before(connection: duckdb.DuckDBPyConnection, week: str) -> str | None:
    """The week right before `week`; None where it has no rows."""
    earlier = week_after(week, -1)
    has_rows = connection.execute("select 1 from dist_coverage where week = ?", [earlier]).fetchall()
    return earlier if has_rows else None


def work_per_s(connection: duckdb.DuckDBPyConnection, deployment_id: str, week: str) -> dict[str, float]:
    """Prompt and output tokens per covered second of each week up to `week`."""
    found = connection.execute(
        "select coverage.week, (prompts.prompt_total_tokens + outputs.output_total_tokens) / coverage.covered_s "
        "from dist_coverage as coverage "
        "inner join dist_prompt_tokens as prompts on coverage.week = prompts.week and prompts.model = '(all)' "
        "inner join dist_output_tokens as outputs on coverage.week = outputs.week and outputs.model = '(all)' "
        "and prompts.deployment_id = outputs.deployment_id "
        "where prompts.deployment_id = $deployment and coverage.week <= $week and coverage.covered_ratio >= $least "
        "order by coverage.week",
        {"deployment": deployment_id, "week": week, "least": LEAST_COVERED_RATIO},
    ).fetchall()
    return {str(name): float(work) for name, work in found if work}
