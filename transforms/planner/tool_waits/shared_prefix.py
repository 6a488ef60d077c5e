"""The part of a waiting context that other sessions of the deployment keep alive: it is not computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.workload import PREFIXES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.workload import Workload

    Reals = NDArray[np.float64]

FIRST_TURNS = ("model", "tenant", "agent_id", "turn", "cached_prompt_tokens")


def shared_prefix_tokens(workload: Workload) -> Reals:
    """Tokens at the start of each tool wait's context that other sessions hold too, one element a wait.

    With prefix blocks: the leading blocks of the session that another session of the week has as well, whether or not
    it used them during the wait. With cached tokens: the median hit of the first turns of the model and tenant, which
    can only have found what others left. 0 where the log has neither: then all of a context counts as lost, and keeping
    it looks better than it is.
    """
    waits = workload.tool_waits.labels
    if workload.has_prefix_blocks:
        found = _by_blocks(workload.rows_to_replay(("session_id", *PREFIXES)))
        return _joined(waits, found, ["session_id"])
    if workload.has_cached_tokens:
        found = _by_first_turns(workload.rows_to_replay(FIRST_TURNS))
        return _joined(waits, found, ["model", "tenant"])
    return np.zeros(len(waits))


def _joined(waits: pl.DataFrame, found: pl.DataFrame, keys: list[str]) -> Reals:
    tokens = waits.select(keys).join(found, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return tokens["tokens"].fill_null(0.0).to_numpy()


def _by_blocks(rows: pl.DataFrame) -> pl.DataFrame:
    """Session → tokens of its longest run of leading blocks that it has in common with others."""
    blocks = (
        rows.filter(pl.col("session_id").is_not_null() & (pl.col("prefix_block_ids").list.len() > 0))
        .select("session_id", "prefix_block_tokens", "prefix_block_ids", row=pl.int_range(pl.len()))
        .with_columns(place=pl.int_ranges(0, pl.col("prefix_block_ids").list.len()))
        .explode("prefix_block_ids", "place")
        .with_columns(is_shared=pl.col("session_id").n_unique().over("prefix_block_ids") > 1)
    )
    is_own = ~pl.col("is_shared")
    first_own = pl.col("place").filter(is_own).min().fill_null(pl.len())
    runs = blocks.group_by("row", "session_id").agg(
        tokens=(first_own * pl.col("prefix_block_tokens").first()).cast(pl.Float64)
    )
    return runs.group_by("session_id").agg(pl.col("tokens").max())


def _by_first_turns(rows: pl.DataFrame) -> pl.DataFrame:
    """(model, tenant) → median of the tokens that first turns outside sub-agents found cached."""
    is_first = (pl.col("turn") == 1) & pl.col("agent_id").is_null() & pl.col("cached_prompt_tokens").is_not_null()
    first = rows.filter(is_first)
    return first.group_by("model", "tenant").agg(tokens=pl.col("cached_prompt_tokens").median().cast(pl.Float64))
