"""Qwen-Bailian usage traces: `timestamp` in s from the start, chats linked by `parent_chat_id`, blocks of 16 tokens.

Source: log_formats.md §10 (alibaba-edu/qwen-bailian-usagetraces-anon). A conversation is named by the chat it begins
with. `chat_id` and block ids count inside one file: rows are told apart by their content, and the file's first record
makes its block ids its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import origin_us
from transforms.fields.decode import Record, decode
from transforms.fields.numbers import small_count
from transforms.fields.words import text
from transforms.finish import frame
from transforms.sources._trace_line import file_salt, offset_clock, own_ids, sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

FORMAT = "bailian"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"block_tokens": 16, "time_unit": "s"}
KEYS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "turn", "hash_ids")
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
    clock = offset_clock(source, batch.carry)
    parents: dict[str, str] = batch.carry.setdefault("parents", {})
    parents.update(filter(None, (_answered(record.value) for record in decoded.records)))
    salt = file_salt(batch)
    rows, rejects = [], list(decoded.rejects)
    for record in decoded.records:
        try:
            row = _row(record, clock, origin, source.block_tokens)
            row["prefix_block_ids"] = own_ids(row["prefix_block_ids"], salt)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        row["session_id"] = _root(text(record.value.get("chat_id")), parents)
        row["flags"] = [*origin_flags, *row["flags"]]
        rows.append(row)
    return Parsed(frame(rows), rejects)


def _answered(line: Mapping[str, Any]) -> tuple[str, str] | None:
    """The chat of a line and the one it answers; None for the first of a conversation."""
    own, parent = text(line.get("chat_id")), text(line.get("parent_chat_id"))
    return None if own is None or parent in (None, NO_PARENT, own) else (own, parent)


def _root(own: str | None, parents: dict[str, str]) -> str | None:
    """The chat that the conversation of chat `own` began with, wherever its line stands; kept as the parent then."""
    seen: list[str] = []
    chat = own
    while chat in parents and chat not in seen:
        seen.append(chat)
        chat = parents[chat]
    for passed in seen:
        if chat is not None and passed != chat:
            parents[passed] = chat
    return chat


def _row(record: Record, clock: Clock, origin: int, block_tokens: int | None) -> dict[str, Any]:
    line, flags = record.value, list(record.flags)
    offset = clock.instant_us(line.get("timestamp"), flags)
    return {
        "source_position": record.position,
        "turn": small_count(line.get("turn"), flags),
        "arrived_at": None if offset is None else origin + offset,
        **sizes(line, block_tokens, flags),
        "flags": flags,
    }
