"""The inputs of a build as temporary relations raw_*: the lake's Parquet, the manifest, and rows made in Python."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import polars as pl

from flows.lake import request_days, requests_paths, settle
from flows.schema import check_schema
from transforms.canonical import SCHEMA
from transforms.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from flows.home import Home

QUARTER = timedelta(minutes=15)
"""Step of raw_hours: every time zone in use is a whole number of quarters off UTC."""

REJECTS: Mapping[str, str] = {"source": "varchar", "source_file": "varchar", "reason": "varchar", "date": "date"}
"""Columns of the rejects that the models read; `date` is in the path."""

FILES: Mapping[str, str] = {
    "source": "varchar",
    "source_file": "varchar",
    "sha256": "varchar",
    "status": "varchar",
    "read": "bigint",
    "loaded": "bigint",
    "duplicates": "bigint",
    "rejected": "bigint",
    "ignored": "bigint",
    "first_arrived_at": "timestamptz",
    "last_arrived_at": "timestamptz",
}
"""Columns of the manifest that the models read, with their DuckDB types."""

SERVES: Mapping[str, pl.DataType] = {"model": pl.String(), "deployment_id": pl.String()}
HOURS: Mapping[str, pl.DataType] = {"quarter_at": pl.Datetime("us"), "hour_of_week": pl.Int32()}

_DUCKDB_TYPES = {
    pl.String(): "varchar",
    pl.Int32(): "integer",
    pl.Int64(): "bigint",
    pl.Float64(): "double",
    pl.Datetime("us", "UTC"): "timestamptz",
    pl.List(pl.UInt64()): "ubigint[]",
    pl.List(pl.String()): "varchar[]",
}

REQUESTS: Mapping[str, str] = {name: _DUCKDB_TYPES[dtype] for name, dtype in SCHEMA.items()}
"""Columns of the lake with their DuckDB types."""


def open_lake(home: Home) -> None:
    """Nothing, once the lake of `home` can be read; DataError where nothing was ingested.

    The caller holds the home's lock: a commit of the lake that was cut short is finished first.
    """
    settle(home)
    check_schema(home)
    if not lake_paths(home):
        raise DataError(f"the lake of {home.root} holds no requests; run kvledger ingest or kvledger review first")


def register_lake(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Make raw_rejects and raw_files over the whole lake of `home`."""
    _parquet_view(connection, "raw_rejects", REJECTS, sorted(home.lake.glob("rejects/date=*/*.parquet")), hive=True)
    _parquet_view(connection, "raw_files", FILES, sorted(home.lake.glob("manifest/files.parquet")))


def register_requests(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], *, where: str = "") -> None:
    """Make raw_requests over the lake's Parquet files at `paths`: the rows where `where`, which may name the `date`."""
    if where:
        body = f"select * exclude (date) from ({requests_of(connection, paths, (*REQUESTS, 'date'))}) where {where}"  # noqa: S608
        connection.execute(f"create or replace temp view raw_requests as {body}")
    else:
        _parquet_view(connection, "raw_requests", REQUESTS, paths)


def requests_of(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], names: Sequence[str]) -> str:
    """SELECT of the columns `names` from the lake's Parquet files at `paths`; `date` is the day of the folder."""
    types = {**REQUESTS, "date": "date"}
    return select_known(connection, {name: types[name] for name in names}, paths, hive=True)


def lake_paths(home: Home) -> dict[date, list[Path]]:
    """Parquet files of the lake's requests by UTC day, in order."""
    return {date.fromisoformat(day): requests_paths(home, day) for day in request_days(home)}


def register_frame(
    connection: duckdb.DuckDBPyConnection, name: str, schema: Mapping[str, pl.DataType], rows: Iterable[Any]
) -> None:
    """Make the temporary table `name` of `rows` (dicts or tuples) with the columns of `schema`."""
    frame = pl.DataFrame(list(rows), schema=dict(schema), orient="row")
    connection.register("incoming", frame)
    connection.execute(f"create or replace temp table {name} as select * from incoming")  # noqa: S608
    connection.unregister("incoming")


def hours_of_week(days: Sequence[date], timezone: str) -> list[tuple[datetime, int]]:
    """Start of each quarter of an hour of the UTC `days`, with its hour of the week in `timezone` (0 = Monday 0:00)."""
    zone = ZoneInfo(timezone)
    quarters = []
    for day in days:
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        for step in range(96):
            at = start + step * QUARTER
            local = at.astimezone(zone)
            quarters.append((at.replace(tzinfo=None), 24 * local.weekday() + local.hour))
    return quarters


def parquet_columns(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], *, hive: bool = False) -> set[str]:
    """Names of the columns that any of the Parquet files at `paths` has."""
    described = connection.execute(f"describe select * from {_reader(paths, hive=hive)}").fetchall()  # noqa: S608
    return {str(row[0]) for row in described}


def select_known(
    connection: duckdb.DuckDBPyConnection, columns: Mapping[str, str], paths: Sequence[Path], *, hive: bool = False
) -> str:
    """SELECT of `columns` from the Parquet files at `paths`, cast to their types; what no file has is NULL."""
    found = parquet_columns(connection, paths, hive=hive)
    listed = ", ".join(
        f"cast({name if name in found else 'null'} as {type_}) as {name}" for name, type_ in columns.items()
    )
    return f"select {listed} from {_reader(paths, hive=hive)}"  # noqa: S608


def _parquet_view(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    columns: Mapping[str, str],
    paths: Sequence[Path],
    *,
    hive: bool = False,
) -> None:
    if paths:
        body = select_known(connection, columns, paths, hive=hive)
    else:
        nulls = ", ".join(f"cast(null as {type_}) as {column}" for column, type_ in columns.items())
        body = f"select {nulls} limit 0"
    connection.execute(f"create or replace temp view {name} as {body}")


def _reader(paths: Sequence[Path], *, hive: bool) -> str:
    listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    types = ", hive_types = {'date': date}" if hive else ""
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {str(hive).lower()}{types})"
