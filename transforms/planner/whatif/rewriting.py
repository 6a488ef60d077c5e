"""The traffic as a scenario's limits leave it: what the replay is given, and what the planner sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.replay.rate_scaling import taken
from transforms.planner.whatif.context_limit import Fate
from transforms.workload import ATTEMPT_COLUMNS, TOOL_WAIT_COLUMNS
from transforms.workload_rows import make_workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_types import TraceColumns
    from transforms.planner.whatif.context_limit import Limited
    from transforms.planner.whatif.offered import Offered
    from transforms.workload import Workload


def served_columns(traffic: Offered, found: Limited) -> TraceColumns:
    """The trace's attempts of served requests, prompts as compacted; what a dropped one caused keeps its logged time.

    Outputs stay as asked for: the replay cuts them at max_model_len itself.
    """
    columns, trace = traffic.trace.columns, traffic.trace
    served = found.is_served[traffic.request]
    if not served.all():
        rows = np.flatnonzero(served)
        place = np.full(columns.rows, -1, dtype=np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)
        columns = taken(columns, rows)
        if len(columns.parent):
            parent = np.where(columns.parent >= 0, place[np.maximum(columns.parent, 0)], -1).astype(np.int32)
            columns = replace(columns, parent=parent)
    if not found.is_compacted.any():
        return columns
    prompt = found.prompt_tokens[traffic.request][served]
    is_first = found.is_compacted[traffic.request][served]
    gone = columns.prompt_tokens - prompt
    changed = replace(columns, prompt_tokens=prompt.astype(np.int32))
    if len(columns.shared_tokens):
        shared = np.where(is_first, 0, np.minimum(columns.shared_tokens, prompt)).astype(np.int32)
        changed = replace(changed, shared_tokens=shared)
    return _own_blocks(changed, gone, trace.prefix_block_tokens) if len(columns.block_ids) else changed


def _own_blocks(columns: TraceColumns, gone: NDArray[np.int64], block_tokens: int) -> TraceColumns:
    """Blocks of compacted contexts are none that were seen before: those of one compaction are shared by its turns."""
    counts = np.diff(columns.block_offsets)
    kept = np.where(gone > 0, np.minimum(counts, columns.prompt_tokens // block_tokens), counts)
    within = np.arange(len(columns.block_ids)) - np.repeat(columns.block_offsets[:-1], counts)
    is_kept = within < np.repeat(kept, counts)
    span = int(columns.block_ids.max(initial=0)) + 1
    ids = (columns.block_ids + np.repeat(gone, counts).astype(np.int64) * span)[is_kept]
    numbers = np.unique(ids, return_inverse=True)[1].astype(np.int32)
    return replace(columns, block_offsets=np.concatenate([[0], np.cumsum(kept)]), block_ids=numbers)


def limited_workload(traffic: Offered, found: Limited) -> Workload:
    """What the planner sizes: attempts with the prompts and outputs that are left.

    A prompt that is too long stays (the planner counts it as a miss); what is never sent, and what the front end or
    already the log refuses, does not.
    """
    fate = found.fate[traffic.request]
    refused = traffic.turns.was_refused[traffic.request]
    prompt, output = found.prompt_tokens[traffic.request], found.output_tokens[traffic.request]
    columns = traffic.trace.columns
    stays = (fate == Fate.SERVED) | ((fate == Fate.PROMPT_TOO_LONG) & ~refused)
    is_cut = (fate == Fate.SERVED) & (output < columns.output_tokens)
    logged = traffic.rows["output_tokens"].to_numpy().astype(np.float64)
    new_output = logged.copy()
    new_output[traffic.replayed] = np.where(
        is_cut | refused, np.minimum(output, columns.output_tokens), logged[traffic.replayed]
    )
    new_prompt = traffic.rows["prompt_tokens"].to_numpy().astype(np.float64)
    new_prompt[traffic.replayed] = prompt
    keep = np.ones(len(traffic.rows), dtype=np.bool_)
    keep[traffic.replayed] = stays
    rows = traffic.rows.with_columns(
        pl.Series("prompt_tokens", new_prompt, nan_to_null=True).cast(pl.Int64),
        pl.Series("output_tokens", new_output, nan_to_null=True).cast(pl.Int64),
        is_failed=pl.col("is_failed") & ~pl.col("was_refused"),
    ).filter(keep)
    no_waits = pl.DataFrame(schema={name: _WAIT_TYPES.get(name, pl.String()) for name in TOOL_WAIT_COLUMNS})
    return make_workload(rows.select(ATTEMPT_COLUMNS), no_waits, traffic.deployment_id, traffic.week)


_WAIT_TYPES: dict[str, pl.DataType] = {
    "arrived_at": pl.Datetime("us"),
    "wait_s": pl.Float64(),
    "prior_context_tokens": pl.Int64(),
}
