"""Which rows are the same row: ids of the source where it has them, else the content of the row."""

from __future__ import annotations

import polars as pl

from transforms.canonical import SCHEMA
from transforms.finish import DEFAULTS

BESIDE_CONTENT = frozenset(
    ("request_id", "attempt", "source", "source_file", "source_position", "flags", "record_id", "precedence")
)
CONTENT = tuple((number, name) for number, name in enumerate(SCHEMA) if name not in BESIDE_CONTENT)
"""Columns that make a row's content, with their place in the schema: a tag that stays when columns are added."""


def content_text(rows: pl.DataFrame, source: str) -> pl.Series:
    """One text per row: the format's name, then tag and value of every column that is known and no default.

    Two rows have equal texts when format and canonical values are equal, whatever batch they came in.
    """
    pieces = [pl.lit(source)]
    for number, name in CONTENT:
        column = rows[name]
        if column.null_count() == len(column) or (name in DEFAULTS and (column == DEFAULTS[name]).all()):
            continue
        value = _as_text(name)
        if name in DEFAULTS:
            value = pl.when(pl.col(name) != DEFAULTS[name]).then(value)
        pieces.append(pl.lit(f"\x1f{number}=") + value)
    return rows.select(pl.concat_str(pieces, ignore_nulls=True).alias("content")).to_series()


def _as_text(name: str) -> pl.Expr:
    dtype = SCHEMA[name]
    column = pl.col(name)
    if isinstance(dtype, pl.List):
        return column.cast(pl.List(pl.String)).list.join(",")
    if isinstance(dtype, pl.Datetime):
        return column.to_physical().cast(pl.String)
    return column.cast(pl.String)


def occurrence(content_ids: pl.Series) -> pl.Series:
    """1-based occurrence of each content id, in the order given."""
    frame = content_ids.alias("id").to_frame()
    return frame.select(pl.int_range(1, pl.len() + 1).over("id")).to_series()
