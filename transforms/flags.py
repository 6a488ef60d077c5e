"""Flags of rows: what ingest noticed about each."""

from __future__ import annotations

import polars as pl


def flagged(rows: pl.DataFrame, where: pl.Series, word: str) -> pl.DataFrame:
    """`rows` with `word` added to the flags of those where `where` is true, once; without that column none has any."""
    if "flags" not in rows.columns:
        rows = rows.with_columns(flags=pl.lit([], dtype=pl.List(pl.String)))
    added = pl.col("flags").list.concat(pl.lit([word])).list.unique(maintain_order=True)
    return rows.with_columns(flags=pl.when(where).then(added).otherwise("flags"))
