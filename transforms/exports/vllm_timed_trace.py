"""Lines for `vllm bench serve --dataset-name timed_trace`: Mooncake's keys, seconds, ids of chunks of 16 tokens.

Source: vllm-project/vllm#39795 (`--timed-trace-chunk-hash-size` 16, `--timed-trace-sec-multiplier` 1).
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
            "timestamp": request.offset_us / 1e6,
            "input_length": request.prompt_tokens,
            "output_length": request.output_tokens,
        }
        yield line if request.block_ids is None else {**line, "hash_ids": request.block_ids}
