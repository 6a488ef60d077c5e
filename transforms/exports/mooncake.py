"""Mooncake trace lines: `timestamp` in whole ms, lengths in tokens, ids of the prompt's blocks of 512 tokens.

Source: log_formats.md §10 and the traces released with Mooncake (FAST'25).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from transforms.exports.traffic import Request


def lines(requests: Iterable[Request]) -> Iterator[dict[str, Any]]:
    """One line a request, in the order given; `hash_ids` where its blocks are known."""
    for request in requests:
        line = {
            "timestamp": request.offset_us // 1000,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
        }
        yield line if request.block_ids is None else {**line, "hash_ids": request.block_ids}
