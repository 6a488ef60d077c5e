"""Traces for `vllm bench serve --dataset-name timed_trace`: Mooncake's keys, seconds, ids of chunks of 16 tokens.

Source: vllm-project/vllm#39795. A stamp is multiplied by `--timed-trace-sec-multiplier` (1: seconds; `time_unit` says
otherwise), an id stands for `--timed-trace-chunk-hash-size` tokens (16; `block_tokens`) and counts inside its file. The
keys can be renamed there; such a file is read through `mapped`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.sources._trace_line import are_blocks_of, file_salt, trace_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch, Head, Parsed
    from transforms.fleet import Source

FORMAT = "vllm-timed-trace"
UNIT = "stream"
CHUNK_TOKENS = 16
"""vLLM's default of --timed-trace-chunk-hash-size."""
MOONCAKE_TOKENS = 512
DEFAULTS: Mapping[str, Any] = {"block_tokens": CHUNK_TOKENS, "time_unit": "s"}
KEYS = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})


def recognise(head: Head) -> str | None:
    """Why `head` looks like a timed trace: Mooncake's four keys alone, with ids that only fit chunks of 16 tokens."""
    found = [r for r in head.records if r.keys() == KEYS]
    is_whole = len(found) == len(head.records) and bool(found)
    if is_whole and are_blocks_of(found, CHUNK_TOKENS) and not are_blocks_of(found, MOONCAKE_TOKENS):
        return f"lines with timestamp, input_length, output_length, one of hash_ids per {CHUNK_TOKENS} tokens"
    return None


def takes(head: Head) -> bool:
    """Whether it may be a timed trace whatever its block ids fit: `block_tokens` and `time_unit` can say so."""
    return bool(head.records) and all(KEYS - {"hash_ids"} <= r.keys() <= KEYS for r in head.records)


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per line; ids that do not fit the length are dropped (`hash_block_mismatch`), tokens kept."""
    return trace_rows(batch, source, file_salt(batch))
