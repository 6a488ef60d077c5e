"""The week's tables as the report reads them: whole frames by name, filtered but never computed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from transforms.errors import DataError

ALL = "(all)"
"""What stands in a key column of a row of totals."""

Marts = Mapping[str, pl.DataFrame]
"""Table name -> rows of one week."""


def rows(marts: Marts, table: str, **equal: str | None) -> pl.DataFrame:
    """Rows of `table` whose key columns equal `equal`; DataError if the warehouse lacks the table."""
    if table not in marts:
        raise DataError(f"the warehouse has no table {table}; run kvledger build to make it anew")
    frame = marts[table]
    return frame.filter(*(pl.col(name).eq_missing(pl.lit(value)) for name, value in equal.items()))


def some(marts: Marts, table: str, **equal: str | None) -> pl.DataFrame | None:
    """Rows of `table` under `equal`; None where there are none, or no such table: what has rows is reported."""
    frame = rows(marts, table, **equal) if table in marts else pl.DataFrame()
    return None if frame.is_empty() else frame


def only(marts: Marts, table: str, **equal: str | None) -> Mapping[str, Any]:
    """The first row of `table` under `equal` as a mapping; every column None where there is no such row."""
    frame = rows(marts, table, **equal)
    return frame.row(0, named=True) if frame.height else dict.fromkeys(frame.columns)


def engine_word(marts: Marts, deployment_id: str) -> str:
    """What one engine of a deployment is: a replica, or one of its data-parallel ranks."""
    ranks = only(marts, "dim_deployments", deployment_id=deployment_id)["data_parallel_size"]
    return "data-parallel rank" if (ranks or 1) > 1 else "replica"
