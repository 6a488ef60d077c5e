"""Finds the rows that have the same id, among the runs of this ingest and over the whole lake, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from flows.lake import requests_paths
from flows.runs import PLACE
from transforms.canonical import SCHEMA
from transforms.identity import RESOLVE_COLUMNS, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.home import Home
    from flows.runs import Run

BUCKET_ROWS = 1_500_000
"""Rows with ids looked at together; more are done in turns, by a hash of the id."""

COLUMNS: dict[str, pl.DataType] = {name: SCHEMA[name] for name in RESOLVE_COLUMNS} | PLACE
NO_DECISIONS = pl.DataFrame(
    schema={"origin": pl.Int32(), "row": pl.UInt32(), "keep": pl.Boolean(), "attempt": pl.Int32()}
)


def lake_origin(number: int) -> int:
    """The origin that stands for the lake's date of that number (in order); runs count from 0 upwards."""
    return -1 - number


def day_number(origin: int) -> int:
    """The number of the lake's date that `lake_origin` gave this origin."""
    return -1 - origin


def decisions_of(
    home: Home, runs: Sequence[Run], days: Sequence[str], reread: Sequence[tuple[str, str]]
) -> pl.DataFrame:
    """What `resolve` finds over all runs and lake dates; the lake rows of `reread` files are left out."""
    identified = [run for run in runs if "request_id" in (*run.columns, *run.constants)]
    buckets = -(-sum(run.rows for run in identified) // BUCKET_ROWS)
    found = [NO_DECISIONS]
    for bucket in range(buckets):
        staged = pl.concat([_with_ids(run, bucket, buckets) for run in identified])
        ids = staged.select("source", "request_id").unique()
        lake = [_same_ids(home, day, lake_origin(n), ids, reread) for n, day in enumerate(days)]
        found.append(resolve(pl.concat([staged, *lake])))
    return pl.concat(found).sort("origin", "row")


def _with_ids(run: Run, bucket: int, buckets: int) -> pl.DataFrame:
    rows = run.select(RESOLVE_COLUMNS).filter(pl.col("request_id").is_not_null())
    if buckets > 1:
        rows = rows.filter(pl.col("request_id").hash() % buckets == bucket)
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in COLUMNS.items() if name not in rows.columns]
    return rows.with_columns(missing).select(*COLUMNS)


def _same_ids(home: Home, day: str, origin: int, ids: pl.DataFrame, reread: Sequence[tuple[str, str]]) -> pl.DataFrame:
    rows = (
        pl.scan_parquet(
            requests_paths(home, day),
            schema=SCHEMA,
            missing_columns="insert",
            extra_columns="ignore",
            row_index_name="row",
        )
        .select("row", *RESOLVE_COLUMNS)
        .join(ids.lazy(), on=["source", "request_id"], how="semi")
        .collect()
    )
    for source, source_file in reread:
        rows = rows.filter(~((pl.col("source") == source) & (pl.col("source_file") == source_file)))
    return rows.with_columns(origin=pl.lit(origin, dtype=pl.Int32)).select(*COLUMNS)
