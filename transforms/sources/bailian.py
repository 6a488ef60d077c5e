"""Qwen-Bailian usage traces: `timestamp` in s from the start, chats linked by `parent_chat_id`, blocks of 16 tokens.

Source: log_formats.md §10 (alibaba-edu/qwen-bailian-usagetraces-anon). A conversation is named by the chat it begins
with. `chat_id` and block ids count inside one file: rows are told apart by their content, and the file's first record
makes its block ids its own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import Clock, clock_of, origin_us
from transforms.fields.decode import Record, decode
from transforms.fields.numbers import block_ids, count, small_count
from transforms.fields.words import text
from transforms.finish import frame
from transforms.fleet import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "bailian"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"block_tokens": 16, "time_unit": "s"}
KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "turn", "hash_ids")
HASH_BLOCK_MISMATCH = "hash_block_mismatch"
NO_PARENT = "-1"


def recognise(head: Head) -> str | None:
    """Why `head` looks like a Bailian trace: lengths with chat_id and parent_chat_id."""
    if any(record.keys() >= {"chat_id", "parent_chat_id", "timestamp", "input_length"} for record in head.records):
        return "lines with chat_id, parent_chat_id, timestamp, input_length"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per line; block ids that do not fit the length are dropped (`hash_block_mismatch`), tokens kept."""
    decoded = decode(batch, KEYS)
    origin_flags: list[str] = []
    origin = origin_us(source, origin_flags)
    clock = clock_of(Source(source.format, source.path, time_unit=source.time_unit), batch.carry)
    roots: dict[str, str] = batch.carry.setdefault("roots", {})
    salt = batch.carry.setdefault("salt", int.from_bytes(hashlib.sha256(batch.lines[0]).digest()[:8]))
    rows, rejects = [], list(decoded.rejects)
    for record in decoded.records:
        try:
            row = _row(record, clock, origin, source.block_tokens)
            row["prefix_block_ids"] = _own(row["prefix_block_ids"], salt)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        row["session_id"] = _root(record.value, roots)
        row["flags"] = [*origin_flags, *row["flags"]]
        rows.append(row)
    return Parsed(frame(rows), rejects)


def _own(ids: list[int] | None, salt: int) -> pl.Series | None:
    return None if ids is None else pl.Series(np.array(ids, dtype=np.uint64) + np.uint64(salt), dtype=pl.UInt64)


def _root(line: Mapping[str, Any], roots: dict[str, str]) -> str | None:
    """The chat that the line's conversation began with; chats that answer another are kept in `roots`."""
    own, parent = text(line.get("chat_id")), text(line.get("parent_chat_id"))
    if own is None or parent in (None, NO_PARENT):
        return own
    roots[own] = roots.get(parent, parent)
    return roots[own]


def _row(record: Record, clock: Clock, origin: int, block_tokens: int | None) -> dict[str, Any]:
    line, flags = record.value, list(record.flags)
    offset = clock.instant_us(line.get("timestamp"), flags)
    prompt = count(line.get("input_length"), flags)
    ids = block_ids(line.get("hash_ids"))
    if ids is not None and not (block_tokens and prompt is not None and len(ids) == -(-prompt // block_tokens)):
        flags.append(HASH_BLOCK_MISMATCH)
        ids = None
    return {
        "source_position": record.position,
        "turn": small_count(line.get("turn"), flags),
        "arrived_at": None if offset is None else origin + offset,
        "prompt_tokens": prompt,
        "output_tokens": count(line.get("output_length"), flags),
        "prefix_block_tokens": block_tokens if ids is not None else None,
        "prefix_block_ids": ids,
        "flags": flags,
    }
