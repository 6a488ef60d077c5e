"""Bodies of Anthropic's Messages API: one a line, batch results, or the events of streams, merged by message id.

Source: log_formats.md §7. The logged prompt leaves out what was read from or written to the cache, so both are added
(`cached_tokens = "inside"` where a gateway has done so). Bodies have no time of their own: a logger's stamp beside one
is taken for the arrival (`arrival_from_response`), else the time of its neighbour or the origin (`assumed_arrival`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import clock_of
from transforms.fields.decode import Record, at, decode
from transforms.fields.usage import settle_usage
from transforms.fields.words import text
from transforms.finish import frame
from transforms.sources._anthropic_body import ARRIVAL_FROM_RESPONSE, body_row
from transforms.sources._anthropic_stream import EVENTS, NO_MESSAGE, Message, event_of, message_id
from transforms.sources._responses import NOT_A_RESPONSE, OUTPUT_PARTIAL, fill_arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

FORMAT = "anthropic"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"cached_tokens": "outside"}
KEYS = ("id", "usage", "input_tokens", "output_tokens", "stop_reason")
BATCH_STATUS = {"errored": "error", "canceled": "aborted", "expired": "timeout"}


@dataclass
class Seen:
    """What lives through a file: messages still open, and the one that events without an id belong to."""

    messages: dict[str, Message] = field(default_factory=dict)
    current: str | None = None


def recognise(head: Head) -> str | None:
    """Why `head` looks like this API: messages with input_tokens, batch results, or events of a stream."""
    for record in head.records:
        if record.get("type") == "message" and at(record, "usage", "input_tokens") is not None:
            return "messages whose usage has input_tokens"
        if "custom_id" in record and isinstance(record.get("result"), dict):
            return "batch results with custom_id and result"
        if at(record, "type") == "message_start" or at(record, "data", "type") == "message_start":
            return "stream events message_start, message_delta"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per message; events of a stream beyond its first are ignored."""
    decoded = decode(batch, KEYS)
    seen: Seen = batch.carry.setdefault("seen", Seen())
    clock = clock_of(source, batch.carry)
    rows, rejects, ignored = [], list(decoded.rejects), 0
    for message in seen.messages.values():
        message.is_touched = False
    for record in map(event_of, decoded.records):
        try:
            row = _row(record, seen, clock, source)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        if row is None:
            ignored += 1
        elif row:
            rows.append(row)
    rows += [_ended(m, clock, source) for m in seen.messages.values() if m.is_ended and not m.is_touched]
    seen.messages = {k: m for k, m in seen.messages.items() if m.is_touched or not m.is_ended}
    return Parsed(_frame(rows, batch.carry, source), rejects, ignored)


def rest(carry: dict[str, Any], source: Source) -> Parsed:
    """Rows of the messages that were still open when the file ended."""
    seen: Seen = carry.get("seen", Seen())
    rows = [_ended(message, clock_of(source, carry), source) for message in seen.messages.values()]
    return Parsed(_frame(rows, carry, source))


def _frame(rows: list[dict[str, Any]], carry: dict[str, Any], source: Source) -> Any:
    rows.sort(key=lambda row: row["source_position"])
    fill_arrivals(rows, carry, source)
    return settle_usage(frame(rows), source)


def _row(record: Record, seen: Seen, clock: Clock, source: Source) -> dict[str, Any] | None:
    """The row of one record; {} for the first event of a message, whose row comes later, None for further ones."""
    value = record.value
    if "custom_id" in value and isinstance(value.get("result"), dict):
        return _batch_row(record, clock, source)
    kind = text(value.get("type"))
    if kind in EVENTS and not (kind == "error" and _of_stream(value, seen) is None):
        return _event(record, seen, clock)
    is_bare = kind is None and at(value, "usage", "input_tokens") is not None
    if kind not in ("message", "error") and not is_bare:
        raise ValueError(NOT_A_RESPONSE)
    return body_row(record.position, value, value, list(record.flags), clock=clock, source=source)


def _batch_row(record: Record, clock: Clock, source: Source) -> dict[str, Any]:
    value, result = record.value, record.value["result"]
    message = result.get("message")
    body = message if isinstance(message, dict) else {"error": at(result, "error", "error") or result.get("error")}
    row = body_row(record.position, body, value, list(record.flags), clock=clock, source=source)
    ended = BATCH_STATUS.get(text(result.get("type")) or "")
    return {
        **row,
        "operation": "batch",
        "request_id": row["request_id"] or text(value.get("custom_id")),
        "status": ended if ended and row["status"] == "ok" else row["status"],
    }


def _of_stream(event: Mapping[str, Any], seen: Seen) -> str | None:
    """The message an event belongs to: the one it names, else the last one that began and has not stopped."""
    return message_id(event) or seen.current


def _event(record: Record, seen: Seen, clock: Clock) -> dict[str, Any] | None:
    event = record.value
    kind = event.get("type")
    identity = _of_stream(event, seen)
    if identity is None:
        if kind == "ping" or event.get("usage") is None:
            return None
        raise ValueError(NO_MESSAGE)
    is_new = identity not in seen.messages
    message = Message(record.position, identity) if is_new else seen.messages[identity]
    message.take(record, clock)
    seen.messages[identity] = message
    if kind == "message_start":
        seen.current = identity
    elif kind in ("message_stop", "error") and seen.current == identity:
        seen.current = None
    return {} if is_new else None


def _ended(message: Message, clock: Clock, source: Source) -> dict[str, Any]:
    """The row of a whole message; one whose stop reason was not seen is flagged `output_partial`."""
    flags = sorted(message.flags)
    if message.stop_reason is None and not message.error:
        flags.append(OUTPUT_PARTIAL)
    row = body_row(message.position, message.body(), {}, flags, clock=clock, source=source)
    if row["status"] == "rejected":
        row["status"] = "error"  # the stream had begun: the call held KV
    arrived_us = message.first_us if message.started_us is None else message.started_us
    if arrived_us is None:
        return row
    flags.append(ARRIVAL_FROM_RESPONSE)
    has_end = message.stop_reason is not None and message.last_us is not None
    return {**row, "arrived_at": arrived_us, "ended_at": message.last_us if has_end else None}
