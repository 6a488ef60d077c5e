"""What a plan reads of the weeks before its own: the workload of the last one, and what each asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.planner.weeks.growth import week_after
from transforms.planner.weeks.week_tables import Weeks

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

    from transforms.fleet import Planning
    from transforms.workload import Workload

    Reader = Callable[[duckdb.DuckDBPyConnection, str, str], Workload]

LEAST_COVERED_RATIO = 0.5
"""Weeks of which less is covered say nothing about growth: which hours they lack decides what they seem to ask for."""


def weeks_before(
    connection: duckdb.DuckDBPyConnection, deployment_id: str, week: str, planning: Planning, read: Reader
) -> Weeks:
    """What is known at `week` of the weeks before it; `read` gives the workload of a deployment and a week."""
    earlier = week_after(week, -1)
    has_rows = connection.execute("select 1 from dist_coverage where week = ?", [earlier]).fetchall()
    return Weeks(
        earlier=read(connection, deployment_id, earlier) if has_rows else None,
        work_per_s=_work_per_s(connection, deployment_id, week),
        horizon_weeks=planning.horizon_weeks,
        lead_time_days=planning.lead_time_days,
    )


def _work_per_s(connection: duckdb.DuckDBPyConnection, deployment_id: str, week: str) -> dict[str, float]:
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
