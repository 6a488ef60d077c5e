"""The shared reading of KV·time: a block that n requests reference at once charges 1/n of itself to each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.residency.kv_time import SECOND_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import Timeline

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SharedOut:
    """Token-seconds of each attempt that others pay for, by phase: what the shared reading takes off the linear one."""

    prefill_token_s: Reals
    decode_token_s: Reals


@dataclass(frozen=True, eq=False)
class _Holds:
    """One element per attempt and prefix block: who, which block, how many tokens, from when to when."""

    row: Wholes
    block: Wholes
    tokens: Reals
    start_us: Reals
    first_us: Reals
    end_us: Reals


def shared_out_by_blocks(timeline: Timeline, prefixes: pl.DataFrame) -> SharedOut:
    """Exact sharing from `prefix_block_ids` and `prefix_block_tokens`, one row an attempt, all in one cache.

    A block counts from the instant it is half filled, so that an attempt that shares nothing pays its linear KV·time.
    """
    holds = _holds(timeline, prefixes)
    paid = _paid_s(holds)
    held_prefill = (holds.first_us - holds.start_us) / SECOND_US
    held_decode = (holds.end_us - holds.first_us) / SECOND_US
    rows = len(timeline.end_us)
    return SharedOut(
        np.bincount(holds.row, holds.tokens * (held_prefill - paid[0]), minlength=rows).astype(np.float64),
        np.bincount(holds.row, holds.tokens * (held_decode - paid[1]), minlength=rows).astype(np.float64),
    )


def shared_out_at_most(timeline: Timeline) -> SharedOut:
    """What `cached_prompt_tokens` allow: at most the whole cached prefix is paid by others all the time."""
    cached = timeline.cached_tokens
    return SharedOut(
        cached * (timeline.first_us - timeline.prefill_us) / SECOND_US,
        cached * (timeline.end_us - timeline.first_us) / SECOND_US,
    )


def _holds(timeline: Timeline, prefixes: pl.DataFrame) -> _Holds:
    blocks = (
        prefixes.select("prefix_block_tokens", "prefix_block_ids")
        .with_row_index("row")
        .filter(pl.col("prefix_block_ids").list.len() > 0)
        .with_columns(pl.int_ranges(0, pl.col("prefix_block_ids").list.len()).alias("place"))
        .explode("prefix_block_ids", "place")
        .with_columns(pl.col("prefix_block_ids").rank("dense").alias("block"))
    )
    row = blocks["row"].to_numpy().astype(np.int64)
    size = blocks["prefix_block_tokens"].to_numpy().astype(np.float64)
    low = blocks["place"].to_numpy() * size
    prompt, cached = timeline.prompt_tokens[row], timeline.cached_tokens[row]
    high = np.minimum(low + size, prompt)
    tokens = np.maximum(high - low, 0.0)
    filled = np.clip(high - np.maximum(low, cached), 0.0, None)
    half = np.maximum(low, cached) + filled / 2 - cached
    late_ratio = half / np.maximum(prompt - cached, 1.0) * filled / np.maximum(tokens, 1.0)
    prefill, first = timeline.prefill_us[row].astype(np.float64), timeline.first_us[row].astype(np.float64)
    return _Holds(
        row=row,
        block=blocks["block"].to_numpy().astype(np.int64),
        tokens=tokens,
        start_us=prefill + (first - prefill) * late_ratio,
        first_us=first,
        end_us=timeline.end_us[row].astype(np.float64),
    )


def _paid_s(holds: _Holds) -> tuple[Reals, Reals]:
    """Seconds each hold pays for, before and after the first token: ∫ dt / (requests that reference the block)."""
    count = len(holds.row)
    block = np.tile(holds.block, 3)
    at_us = np.concatenate((holds.start_us, holds.first_us, holds.end_us))
    change = np.repeat((1, 0, -1), count)
    order = np.lexsort((at_us, block))
    block, at_us, change = block[order], at_us[order], change[order]
    sharers = np.cumsum(change)
    gap_s = np.where(block[1:] == block[:-1], np.diff(at_us), 0.0) / SECOND_US
    share_s = np.concatenate(([0.0], np.cumsum(gap_s / np.maximum(sharers[:-1], 1)))) if count else np.zeros(0)
    clock = np.empty(3 * count)
    clock[order] = share_s
    start, first, end = clock.reshape(3, count)
    return first - start, end - first
