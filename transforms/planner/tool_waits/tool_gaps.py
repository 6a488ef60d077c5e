"""Which gaps of a trace are tool waits: sql/core/fct_tool_waits.sql's rule on canonical rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

CALLING = ("tool_calls", "tool_use", "function_call")
"""Finish reasons that ask for tools."""
FAILED = ("error", "timeout", "rejected", "aborted")


def after_tools(rows: pl.DataFrame, before: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of the canonical `rows` comes after a wait for tools; `before` is its agent's turn before (a row).

    A wait the source logged is one. Else the turn before must have asked for tools and this one carry results, as far
    as the log says (planner.md §2). False where `before` is −1.
    """
    is_failed = pl.col("status").is_in(FAILED).fill_null(value=False)
    has_calls = (pl.col("tool_calls").fill_null(0) > 0) | pl.col("finish_reason").is_in(CALLING).fill_null(value=False)
    is_told = pl.col("tool_calls").is_not_null() | pl.col("finish_reason").is_not_null()
    known = rows.select(
        calls=~is_failed & has_calls,
        told=is_failed | is_told,
        logged=pl.col("logged_tool_wait_s").is_not_null(),
        results=pl.col("tool_results").fill_null(-1),
    )
    calls, told = known["calls"].to_numpy()[before], known["told"].to_numpy()[before]
    logged, results = known["logged"].to_numpy(), known["results"].to_numpy()
    carries = np.where(results < 0, calls, np.where(told, calls & (results > 0), results > 0))
    return (before >= 0) & (logged | carries)
