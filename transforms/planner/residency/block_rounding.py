"""Bytes that whole KV blocks hold, on average over a stretch in which a request grows: exact closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from transforms.planner.memory.kv_result import KvGroup


def block_bytes(groups: Sequence[KvGroup], tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes that `tokens` resident tokens hold in whole blocks, each: Σ fixed + min(⌈tokens/block⌉, max) · bytes."""
    total = np.zeros(tokens.shape)
    for group in groups:
        used = np.ceil(tokens / group.block_tokens)
        if group.max_blocks is not None:
            used = np.minimum(used, group.max_blocks)
        total += group.fixed_bytes + used * group.bytes_per_block
    return total


def ramp_mean_bytes(
    groups: Sequence[KvGroup], from_tokens: NDArray[np.float64], to_tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean bytes while tokens grow steadily and continuously (a prefill), each; the level where they do not grow."""
    grown = to_tokens - from_tokens
    is_growing = grown > 0
    total = np.zeros(grown.shape)
    for group in groups:
        area = _ceiling_area(group, to_tokens) - _ceiling_area(group, from_tokens)
        mean_blocks = area / np.where(is_growing, grown, 1.0)
        total += group.fixed_bytes + mean_blocks * group.bytes_per_block
    return np.where(is_growing, total, block_bytes(groups, to_tokens))


def decode_mean_bytes(
    groups: Sequence[KvGroup], prompt_tokens: NDArray[np.float64], output_tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean bytes over a decode with evenly spaced tokens, each; the prompt's level where there is no second token.

    Between output o and o + 1 the request holds the blocks of P + o − 1 tokens: the newest token's KV is written by the
    next step. So the mean is that of ⌈n/block⌉ over n = P … P + O − 2.
    """
    gaps = output_tokens - 1
    is_growing = gaps > 0
    total = np.zeros(gaps.shape)
    for group in groups:
        area = _ceiling_area(group, prompt_tokens + gaps - 1) - _ceiling_area(group, prompt_tokens - 1)
        mean_blocks = area / np.where(is_growing, gaps, 1.0)
        total += group.fixed_bytes + mean_blocks * group.bytes_per_block
    return np.where(is_growing, total, block_bytes(groups, prompt_tokens))


def decode_end_bytes(
    groups: Sequence[KvGroup], prompt_tokens: NDArray[np.float64], output_tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bytes in whole blocks when the last output token is out, each: P + max(O − 1, 0) tokens."""
    return block_bytes(groups, prompt_tokens + np.maximum(output_tokens - 1, 0))


def _ceiling_area(group: KvGroup, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integral of min(⌈u/block⌉, max_blocks) for u from 0 to `tokens`; on whole tokens also the sum over 1 … tokens."""
    size = group.block_tokens
    clipped = np.maximum(tokens, 0.0)
    over = np.zeros(clipped.shape)
    if group.max_blocks is not None:
        over = np.maximum(clipped - group.max_blocks * size, 0.0)
        clipped = clipped - over
    full = np.floor(clipped / size)
    area: NDArray[np.float64] = size * full * (full + 1) / 2 + (clipped - full * size) * (full + 1)
    return area + over * (group.max_blocks or 0)
