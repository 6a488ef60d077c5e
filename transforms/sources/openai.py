"""Bodies of OpenAI's APIs as clients and gateways log them: one a line, batch output lines, stream chunks and events.

Source: log_formats.md §7. Cached tokens are inside the prompt's count, reasoning tokens inside the output's. `created`
is when the answer was begun: the arrival, for want of a better. Lines of a batch have the operation `batch`: nobody
waited for them. A record without any time gets its neighbour's (`assumed_arrival`).
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
from transforms.sources._openai_body import body_row, operation_of
from transforms.sources._openai_stream import CHUNK, Stream, stream_id
from transforms.sources._responses import NOT_A_RESPONSE, fill_arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

FORMAT = "openai"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {}
KEYS = ("id", "created", "usage", "prompt_tokens", "completion_tokens")
OBJECTS = frozenset({"chat.completion", CHUNK, "text_completion", "response"})
BUCKETS = "totals of the usage API, not requests"


@dataclass
class Seen:
    """What lives through a file: open streams, when each id was created, which conversation each response is in."""

    streams: dict[str, Stream] = field(default_factory=dict)
    created_us: dict[str, int | None] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)


def recognise(head: Head) -> str | None:
    """Why `head` looks like bodies of these APIs: object names, or id, created, model, usage or choices."""
    for record in head.records:
        if _is_batch(record):
            return "batch output lines with custom_id and response"
        if text(record.get("object")) in OBJECTS or str(record.get("type")).startswith("response."):
            return f"objects {record.get('object') or record.get('type')}"
        if record.keys() >= {"id", "created", "model"} and {"usage", "choices"} & record.keys():
            return "bodies with id, created, model and usage or choices"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per answer; events of a stream beyond its first are ignored."""
    decoded = decode(batch, KEYS)
    seen: Seen = batch.carry.setdefault("seen", Seen())
    clock = clock_of(source, batch.carry)
    rows, rejects, ignored = [], list(decoded.rejects), 0
    for stream in seen.streams.values():
        stream.is_touched = False
    for record in decoded.records:
        try:
            row = _row(record, seen, clock, source)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        if row is None:
            ignored += 1
        elif row:
            rows.append(row)
    done = [identity for identity, stream in seen.streams.items() if stream.is_ended and not stream.is_touched]
    rows += _ended(done, seen, clock, source)
    return Parsed(_frame(rows, batch.carry, source), rejects, ignored)


def rest(carry: dict[str, Any], source: Source) -> Parsed:
    """Rows of the streams that were still open when the file ended."""
    seen: Seen = carry.get("seen", Seen())
    rows = list(_ended(list(seen.streams), seen, clock_of(source, carry), source))
    return Parsed(_frame(rows, carry, source))


def _frame(rows: list[dict[str, Any]], carry: dict[str, Any], source: Source) -> Any:
    rows.sort(key=lambda row: row["source_position"])
    fill_arrivals(rows, carry, source)
    return settle_usage(frame(rows), source)


def _row(record: Record, seen: Seen, clock: Clock, source: Source) -> dict[str, Any] | None:
    """The row of one record; {} for the first event of a stream, whose row comes later, None for further ones."""
    value = record.value
    identity = stream_id(value)
    if identity is not None:
        _checked(record, clock, source)
        is_new = identity not in seen.streams
        seen.streams.setdefault(identity, Stream(record.position)).take(record)
        return {} if is_new else None
    if str(value.get("type")).startswith("response.") or (value.get("object") == CHUNK and not value.get("usage")):
        return None
    body = at(value, "response", "body") if _is_batch(value) else value
    body = body if isinstance(body, dict) else {}
    around = {**value, **response} if isinstance(response := value.get("response"), dict) else value
    _check(value, body)
    row = body_row(record.position, body, around, list(record.flags), clock=clock, source=source)
    if _is_batch(value):
        row["operation"] = "batch"
        row["request_id"] = row["request_id"] or text(value.get("id"))
    return _placed(row, body, seen)


def _check(value: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """ValueError for a record that is no answer."""
    if value.get("object") in ("bucket", "page"):
        raise ValueError(BUCKETS)
    is_answer = {"usage", "choices", "error", "output"} & body.keys() or operation_of(body) != "chat"
    if not (is_answer or _is_batch(value)) or body.get("type") == "message":
        raise ValueError(NOT_A_RESPONSE)


def _placed(row: dict[str, Any], body: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    """The row in its conversation, and under an id that is its own: some servers use short ids again and again."""
    own, before = row["request_id"], text(body.get("previous_response_id"))
    if own is not None and before is not None:
        seen.roots[own] = seen.roots.get(before, before)
    row["session_id"] = row["session_id"] or (seen.roots.get(own, own) if body.get("object") == "response" else None)
    if own is not None and seen.created_us.setdefault(own, row["arrived_at"]) != row["arrived_at"]:
        row["request_id"] = f"{own}@{row['arrived_at']}"
    return row


def _checked(record: Record, clock: Clock, source: Source) -> None:
    """ValueError where a chunk or event says something unusable: it is rejected before it gets into its stream."""
    response = record.value.get("response")
    body_row(0, response if isinstance(response, dict) else record.value, record.value, [], clock=clock, source=source)


def _ended(identities: list[str], seen: Seen, clock: Clock, source: Source) -> Iterator[dict[str, Any]]:
    for identity in identities:
        stream = seen.streams.pop(identity)
        body = stream.whole()
        row = body_row(stream.position, body, stream.around, sorted(stream.flags), clock=clock, source=source)
        yield _placed(row, body, seen)


def _is_batch(record: Mapping[str, Any]) -> bool:
    return "custom_id" in record and ("response" in record or "error" in record)
