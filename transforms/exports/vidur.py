"""Rows of the Vidur simulator's request traces: arrival in seconds, prompt and output tokens; a CSV file.

Source: log_formats.md §10 (github.com/microsoft/vidur, data/processed_traces).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from transforms.exports.traffic import Request

COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def lines(requests: Iterable[Request]) -> Iterator[dict[str, Any]]:
    """One row a request, in the order given, its keys those of COLUMNS."""
    for request in requests:
        values = (request.offset_us / 1e6, request.prompt_tokens, request.output_tokens)
        yield dict(zip(COLUMNS, values, strict=True))
