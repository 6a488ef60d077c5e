"""Token counts as sources mean them, settled by source settings: what is inside what, and what a zero says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from transforms.flags import flagged

if TYPE_CHECKING:
    from transforms.fleet import Source

USAGE_MISSING = "usage_missing"


def settle_usage(rows: pl.DataFrame, source: Source) -> pl.DataFrame:
    """`rows` whose prompt includes cached and whose output includes reasoning tokens, without zeros that mean unknown.

    Rows without prompt and output count carry the flag `usage_missing` where the format has these columns.
    """
    present = set(rows.columns)
    if source.zero_usage == "missing" and {"prompt_tokens", "output_tokens"} <= present:
        zero = rows.select((pl.col("prompt_tokens").fill_null(0) == 0) & (pl.col("output_tokens").fill_null(0) == 0))
        if zero.to_series().any():
            names = ("prompt_tokens", "output_tokens", "cached_prompt_tokens", "reasoning_tokens")
            known = [pl.when(~zero.to_series()).then(pl.col(n)).alias(n) for n in names if n in present]
            rows = flagged(rows.with_columns(known), zero.to_series(), USAGE_MISSING)
    if source.cached_tokens == "outside" and "prompt_tokens" in present:
        beside = [pl.col(n).fill_null(0) for n in ("cached_prompt_tokens", "cache_write_tokens") if n in present]
        rows = rows.with_columns(prompt_tokens=sum(beside, start=pl.col("prompt_tokens")))
    if source.reasoning_tokens == "outside" and {"output_tokens", "reasoning_tokens"} <= present:
        rows = rows.with_columns(output_tokens=pl.col("output_tokens") + pl.col("reasoning_tokens").fill_null(0))
    return rows
