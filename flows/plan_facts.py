"""Facts of one deployment and week on their way from the warehouse to the planner: laid aside as Parquet, then read.

A worker reads them where they lie; the warehouse they come from may be a draft that only its own process has open.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from flows.parquet_out import write_relation
from transforms.workload import ATTEMPT_COLUMNS, TOOL_WAIT_COLUMNS, make_workload, week_start

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from transforms.workload import Workload

GROUP_ROWS = 122_880
ATTEMPTS, WAITS = "attempts.parquet", "waits.parquet"


def lay_facts(connection: duckdb.DuckDBPyConnection, deployment_id: str, week: str, folder: Path) -> None:
    """Write attempts of one deployment in `week`, those still running at its start, and its tool waits to `folder`."""
    start = week_start(week).replace(tzinfo=None)
    named = {"deployment": deployment_id, "week": week, "start": start, "before": start - timedelta(days=7)}
    attempts = connection.sql(
        f"select {', '.join(ATTEMPT_COLUMNS)} from fct_attempts "  # noqa: S608
        "where deployment_id = $deployment and (week = $week "
        "or (arrived_at < $start and arrived_at >= $before and ended_at > $start)) "
        "order by arrived_at, source, request_id, attempt",
        params=named,
    )
    waits = connection.sql(
        f"select {', '.join(TOOL_WAIT_COLUMNS)} from fct_tool_waits "  # noqa: S608
        "where deployment_id = $deployment and week = $week order by arrived_at, session_id, agent_id, turn",
        params={"deployment": deployment_id, "week": week},
    )
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ((ATTEMPTS, attempts), (WAITS, waits)):
        write_relation(rows, folder / name, group_rows=GROUP_ROWS)


def read_workload(folder: Path, deployment_id: str, week: str) -> Workload:
    """Workload of one deployment in `week` from the facts laid in `folder`."""
    return make_workload(pl.read_parquet(folder / ATTEMPTS), pl.read_parquet(folder / WAITS), deployment_id, week)


def attempts_laid(folder: Path) -> int:
    """Attempts laid in `folder`."""
    return int(pq.read_metadata(folder / ATTEMPTS).num_rows)
