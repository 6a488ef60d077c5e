"""Mooncake trace lines (FAST'25): `timestamp` in ms from the start, lengths in tokens, prefix-chained block ids.

Source: traces README and log_formats.md §10; the released traces hash blocks of 512 tokens, ids are global.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.sources._trace_line import trace_rows
from transforms.sources.vllm_timed_trace import recognise as is_timed_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch, Head, Parsed
    from transforms.fleet import Source

FORMAT = "mooncake"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {"block_tokens": 512, "time_unit": "ms"}
LENGTHS = frozenset({"timestamp", "input_length", "output_length"})
ELSEWHERE = frozenset({"chat_id", "session_id", "delay", "delay_ms"})
"""Keys of the formats that grew out of this one: Bailian's, AIPerf's."""


def recognise(head: Head) -> str | None:
    """Why `head` looks like a Mooncake trace: timestamp and lengths, neither a conversation nor vLLM's chunks of 16."""
    found = [r for r in head.records if r.keys() >= LENGTHS]
    if not found or any(ELSEWHERE & r.keys() for r in found) or is_timed_trace(head):
        return None
    return "lines with timestamp, input_length, output_length" + (", hash_ids" if "hash_ids" in found[0] else "")


def takes(head: Head) -> bool:
    """Whether it may be a Mooncake trace whatever its block ids fit: `block_tokens` and `time_unit` can say so."""
    return any(r.keys() >= LENGTHS and not ELSEWHERE & r.keys() for r in head.records)


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per line; block ids that do not fit the length are dropped (`hash_block_mismatch`), tokens kept."""
    return trace_rows(batch, source)
