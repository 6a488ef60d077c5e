"""Mooncake trace lines (FAST'25): `timestamp` in ms from the start, lengths in tokens, prefix-chained block ids.

Source: traces README and log_formats.md §10; the released traces hash blocks of 512 tokens, ids are global.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import Clock, clock_of, origin_us
from transforms.fields.decode import Record, decode
from transforms.fields.numbers import block_ids, count
from transforms.finish import frame
from transforms.fleet import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "mooncake"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {"block_tokens": 512, "time_unit": "ms"}
HASH_BLOCK_MISMATCH = "hash_block_mismatch"
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


def recognise(head: Head) -> str | None:
    """Why `head` looks like a Mooncake trace: timestamp and input_length without a conversation id."""
    found = [r for r in head.records if {"timestamp", "input_length", "output_length"} <= r.keys()]
    if found and not any("chat_id" in r or "session_id" in r for r in found):
        return "lines with timestamp, input_length, output_length" + (", hash_ids" if "hash_ids" in found[0] else "")
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per line; block ids that do not fit the length are dropped (`hash_block_mismatch`), tokens kept."""
    decoded = decode(batch, KEYS)
    origin_flags: list[str] = []
    origin = origin_us(source, origin_flags)
    clock = clock_of(Source(source.format, source.path, time_unit=source.time_unit), batch.carry)
    rows, rejects = [], list(decoded.rejects)
    for record in decoded.records:
        try:
            rows.append(_row(record, origin, [*origin_flags, *record.flags], clock, source))
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    return Parsed(frame(rows), rejects)


def _row(record: Record, origin: int, flags: list[str], clock: Clock, source: Source) -> dict[str, Any]:
    line = record.value
    offset = clock.instant_us(line.get("timestamp"), flags)
    prompt = count(line.get("input_length"), flags)
    ids = block_ids(line.get("hash_ids"))
    block = source.block_tokens
    if ids is not None and not (block and prompt is not None and len(ids) == -(-prompt // block)):
        flags.append(HASH_BLOCK_MISMATCH)
        ids = None
    return {
        "source_position": record.position,
        "arrived_at": None if offset is None else origin + offset,
        "prompt_tokens": prompt,
        "output_tokens": count(line.get("output_length"), flags),
        "prefix_block_tokens": block if ids is not None else None,
        "prefix_block_ids": ids,
        "flags": flags,
    }
