"""Parquet files of a home that can no longer be read: one line that names the file and what to do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from transforms.errors import DataError, HomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from flows.home import Home

UNREADABLE = (pl.exceptions.PolarsError, pa.ArrowException, duckdb.Error, OSError)
"""What the readers of Parquet raise on a damaged file."""
LAKE_REMEDY = "remove {lake} and ingest the logs again"
PLAN_REMEDY = "remove it and run kvledger plan for that week again"
CORRUPT = "Corrupt database file"
"""In DuckDB's error for a block of its own file that does not match its checksum."""


@contextmanager
def damage_named(files: Callable[[], Iterable[Path]], remedy: str) -> Iterator[None]:
    """HomeError that names the first of `files` that cannot be read, where the block fails for that; else its error.

    Files are only looked through after a failure: a good run pays nothing.
    """
    try:
        yield
    except UNREADABLE as error:
        is_of_the_disk = isinstance(error, OSError) and error.errno is not None
        damaged = None if is_of_the_disk else next(damaged_files(files()), None)
        if damaged is None:
            raise
        raise HomeError(f"{damaged}: is damaged and cannot be read; {remedy}") from error


@contextmanager
def lake_damage_named(home: Home) -> Iterator[None]:
    """The same for a block that reads the lake of `home`."""
    with damage_named(lambda: sorted(home.lake.rglob("*.parquet")), LAKE_REMEDY.format(lake=home.lake)):
        yield


@contextmanager
def plan_damage_named(home: Home) -> Iterator[None]:
    """The same for a block that reads the plans of `home`."""
    with damage_named(lambda: sorted(home.plans.rglob("*.parquet")), PLAN_REMEDY):
        yield


@contextmanager
def warehouse_damage_named(path: Path) -> Iterator[None]:
    """DataError that names the warehouse at `path`, where the block fails on a damaged block of it (or of its copy)."""
    try:
        yield
    except duckdb.Error as error:
        if CORRUPT not in str(error):
            raise
        what = str(error).splitlines()[0]
        raise DataError(f"{path}: is damaged and cannot be read ({what}); remove it and run kvledger build") from error


def damaged_files(files: Iterable[Path]) -> Iterator[Path]:
    """Those of the Parquet `files` that cannot be read to their end."""
    return (path for path in files if not _is_whole(path))


def _is_whole(path: Path) -> bool:
    try:
        with pq.ParquetFile(path) as file:
            return all(True for _ in file.iter_batches())
    except UNREADABLE:
        return False
