"""The canonical request row: one row per attempt, the same columns for every log format."""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = 1
"""`kvledger_schema` in the Parquet metadata; raised when a column changes meaning, not when one is added."""

STATUSES = ("ok", "length", "error", "timeout", "rejected", "aborted")
OPERATIONS = ("chat", "embedding", "rerank", "moderation", "batch", "other")
SERVED_BY = ("backend", "gateway_cache")

SCHEMA: dict[str, pl.DataType] = {
    "request_id": pl.String(),
    "attempt": pl.Int32(),
    "session_id": pl.String(),
    "agent_id": pl.String(),
    "turn": pl.Int32(),
    "arrived_at": pl.Datetime("us", "UTC"),
    "model": pl.String(),
    "tenant": pl.String(),
    "operation": pl.String(),
    "served_by": pl.String(),
    "replica_id": pl.String(),
    "status": pl.String(),
    "finish_reason": pl.String(),
    "prompt_tokens": pl.Int64(),
    "cached_prompt_tokens": pl.Int64(),
    "cache_write_tokens": pl.Int64(),
    "output_tokens": pl.Int64(),
    "reasoning_tokens": pl.Int64(),
    "requested_output_tokens": pl.Int64(),
    "choices": pl.Int32(),
    "queue_s": pl.Float64(),
    "ttft_s": pl.Float64(),
    "e2e_s": pl.Float64(),
    "tool_calls": pl.Int32(),
    "tool_results": pl.Int32(),
    "logged_tool_wait_s": pl.Float64(),
    "prefix_block_tokens": pl.Int32(),
    "prefix_block_ids": pl.List(pl.UInt64()),
    "source": pl.String(),
    "source_file": pl.String(),
    "source_position": pl.Int64(),
    "flags": pl.List(pl.String()),
    "record_id": pl.String(),
    "precedence": pl.Int64(),
}
"""Column -> type, in lake order. NULL is unknown, 0 is really zero; `flags` is never NULL.

The last two serve identity alone. `record_id` is the source's own id of this row where it is not (request_id, attempt):
the LiteLLM row among the attempts of one call. `precedence` settles which of two records of one row stays: the higher
(NULL = 0), then the one with more output, then the earlier.
"""

SORT_KEYS = ("arrived_at", "source", "request_id", "attempt")
"""Order of rows inside a date of the lake."""
