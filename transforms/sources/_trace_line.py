"""One line of a replay trace in Mooncake's shape: a stamp, lengths in tokens, ids of the prompt's blocks."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.batches import Parsed, Reject
from transforms.fields.clock import Clock, clock_of, origin_us
from transforms.fields.decode import Record, decode
from transforms.fields.numbers import block_ids, count
from transforms.finish import frame
from transforms.fleet import Source
from transforms.sources.weka import ASSUMED_START, start_offset_us

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch

HASH_BLOCK_MISMATCH = "hash_block_mismatch"
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
CUT_IDS = 50
"""A head holds so many of a list's elements (flows/reading/look.py); there may have been more."""


def trace_rows(batch: Batch, source: Source, salt: int | None = None) -> Parsed:
    """One row per line, stamps counted from the origin; block ids that do not fit the length are dropped.

    `salt` makes block ids the file's own; None for ids that mean the same in every file.
    """
    decoded = decode(batch, KEYS)
    origin_flags: list[str] = []
    origin = origin_us(source, origin_flags)
    clock = offset_clock(source, batch.carry)
    rows, rejects = [], list(decoded.rejects)
    for record in decoded.records:
        try:
            row = _row(record, origin, [*origin_flags, *record.flags], clock, source)
            rows.append({**row, "prefix_block_ids": own_ids(row["prefix_block_ids"], salt)})
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    return Parsed(frame(rows), rejects)


def file_salt(batch: Batch) -> int:
    """A number of the file's first record, the same in all of its batches: for block ids that count inside a file."""
    salt: int = batch.carry.setdefault("salt", int.from_bytes(hashlib.sha256(batch.lines[0]).digest()[:8]))
    return salt


def own_ids(ids: list[int] | None, salt: int | None) -> list[int] | pl.Series | None:
    """Block ids made unique by `salt` (modulo 2^64), as they are without one."""
    if ids is None or salt is None:
        return ids
    return pl.Series(np.array(ids, dtype=np.uint64) + np.uint64(salt), dtype=pl.UInt64)


def offset_clock(source: Source, carry: dict[str, Any]) -> Clock:
    """The clock of stamps that count from the start of a trace: the source's unit, no zone."""
    return clock_of(Source(source.format, source.path, time_unit=source.time_unit), carry)


def session_start_us(source: Source, carry: dict[str, Any], flags: list[str]) -> int:
    """Start of a session that names no time, in us UTC: the origin, or, under a rate, the next random point."""
    number = carry.setdefault("ordinal", 0)
    carry["ordinal"] = number + 1
    flags.append(ASSUMED_START)
    return origin_us(source, flags) + start_offset_us(source.session_rate_per_s, number)


def _row(record: Record, origin: int, flags: list[str], clock: Clock, source: Source) -> dict[str, Any]:
    line = record.value
    offset = clock.instant_us(line.get("timestamp"), flags)
    return {
        "source_position": record.position,
        "arrived_at": None if offset is None else origin + offset,
        **sizes(line, source.block_tokens, flags),
        "flags": flags,
    }


def sizes(line: Mapping[str, Any], block_tokens: int | None, flags: list[str]) -> dict[str, Any]:
    """Prompt and output of a line and its block ids, which are dropped where they do not fit the prompt (flagged)."""
    prompt, output = count(line.get("input_length"), flags), count(line.get("output_length"), flags)
    ids = block_ids(line.get("hash_ids"))
    if ids is not None and not (block_tokens and prompt is not None and len(ids) == -(-prompt // block_tokens)):
        flags.append(HASH_BLOCK_MISMATCH)
        ids = None
    return {
        "prompt_tokens": prompt,
        "output_tokens": output,
        "prefix_block_tokens": block_tokens if ids is not None else None,
        "prefix_block_ids": ids,
    }


def are_blocks_of(records: Sequence[Mapping[str, Any]], block_tokens: int) -> bool:
    """Whether the lines that have block ids have one for each `block_tokens` tokens of their prompts; False if none."""
    known = [
        (record["input_length"], len(record["hash_ids"]))
        for record in records
        if isinstance(record.get("hash_ids"), list) and type(record.get("input_length")) is int
    ]
    wanted = [(-(-prompt // block_tokens), ids) for prompt, ids in known]
    return bool(known) and all(ids == blocks or CUT_IDS <= ids < blocks for blocks, ids in wanted)
