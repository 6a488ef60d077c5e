"""Facts of one deployment and week on their way from the warehouse to the planner: laid aside as Parquet, then read.

A worker reads them where they lie, a row group at a time; the warehouse they come from may be a draft that only its own
process has open.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from flows.parquet_out import write_relation
from transforms.workload import ATTEMPT_COLUMNS, TOOL_WAIT_COLUMNS, micros, week_start
from transforms.workload_rows import make_workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa

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


@dataclass(frozen=True)
class LaidRows:
    """Rows of one Parquet file of attempts, read by row groups."""

    path: Path

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """All rows in order of arrival, `columns` of them, a row group each."""
        yield from self._read(columns, None)

    def between(self, columns: Sequence[str], low_us: int, high_us: int) -> Iterator[pl.DataFrame]:
        """Row groups that have rows with `arrived_at` in [low_us, high_us), µs since 1970."""
        yield from self._read(columns, (low_us, high_us))

    def _read(self, columns: Sequence[str], between_us: tuple[int, int] | None) -> Iterator[pl.DataFrame]:
        with pq.ParquetFile(self.path) as file:
            place = file.schema_arrow.names.index("arrived_at")
            groups = [
                number
                for number in range(file.num_row_groups)
                if between_us is None or _meets(file.metadata.row_group(number).column(place).statistics, between_us)
            ]
            if not groups:
                yield _frame(file.schema_arrow.empty_table().select(list(columns)))
            for number in groups:
                yield _frame(file.read_row_group(number, columns=list(columns)).select(list(columns)))


def _meets(arrived: pq.Statistics | None, between_us: tuple[int, int]) -> bool:
    """Whether a row group whose arrivals are those of `arrived` may have some between."""
    if arrived is None or arrived.min is None or arrived.max is None:
        return True
    low_us, high_us = between_us
    first_us, last_us = (micros(moment.replace(tzinfo=UTC)) for moment in (arrived.min, arrived.max))
    return first_us < high_us and last_us >= low_us


def _frame(table: pa.Table) -> pl.DataFrame:
    frame: pl.DataFrame = pl.from_arrow(table)  # type: ignore[assignment]
    return frame


def read_workload(folder: Path, deployment_id: str, week: str) -> Workload:
    """Workload of one deployment in `week` from the facts laid in `folder`, which it goes on reading from."""
    return make_workload(LaidRows(folder / ATTEMPTS), pl.read_parquet(folder / WAITS), deployment_id, week)


def attempts_laid(folder: Path) -> int:
    """Attempts laid in `folder`."""
    return int(pq.read_metadata(folder / ATTEMPTS).num_rows)
