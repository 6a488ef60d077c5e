"""A session of kv-cache-tester as a document: its calls on the session's clock, those of sub-agents among them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from transforms.batches import Batch, Reject
from transforms.fields.clock import in_range
from transforms.fields.decode import NOT_AN_OBJECT, Record, decode, parse
from transforms.fields.numbers import block_ids, seconds
from transforms.fields.words import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KEYS = ("t", "in", "out", "stop", "api_time", "think_time", "hash_ids")
NO_START = "no start of the call"
ASSUMED_ARRIVAL = "assumed_arrival"
LAUNCHED = "async_launched"
"""Status of a sub-agent that goes on while its parent does: its marker stands where it starts."""


class Document(msgspec.Struct):
    """A session as it lies in the file, its calls still as text: a long one has tens of millions of block ids."""

    requests: list[Any]
    id: Any = None
    models: Any = None
    block_size: Any = None
    hash_id_scope: Any = None


class RawDocument(Document):
    """The same, read fast."""

    requests: list[msgspec.Raw]


@dataclass(frozen=True)
class Call:
    """One request with its place in time: seconds from the session's start."""

    record: Record
    agent_id: str | None
    start_s: float
    flags: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What has become of the documents read so far."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    ignored: int = 0


def read_document(line: bytes) -> Document | None:
    """The session in one JSON text; None where it is none."""
    try:
        return _fast.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        records = decode(Batch("", [line], [0])).records
    try:
        return msgspec.convert(records[0].value, Document) if records else None
    except msgspec.ValidationError:
        return None


_fast = msgspec.json.Decoder(RawDocument)


def calls_of(requests: Iterable[Any], position: int, out: Outcome) -> Iterator[Call]:
    """The calls among `requests` and, under markers of sub-agents, theirs; what is neither goes to the rejects."""
    for number, raw in enumerate(requests):
        try:
            record = _record(raw, position)
            start_s = _span_s(record.value.get("t"), "s")
            if start_s is None:
                raise ValueError(NO_START)  # noqa: TRY301 - one way for every unusable element
        except ValueError as error:
            out.rejects += [Reject(position, str(error))] * _calls_in(raw)
            continue
        nested = record.value.get("requests")
        if isinstance(nested, list):
            out.ignored += 1
            agent_id = text(record.value.get("agent_id")) or f"subagent-{number}"
            yield from _nested(record.value, list(calls_of(nested, position, out)), start_s, agent_id)
        else:
            yield Call(record, None, start_s)


def _calls_in(raw: Any) -> int:
    """How many calls an element of `requests` stands for: those under it, or itself."""
    value = parse(bytes(raw)) if isinstance(raw, msgspec.Raw) else raw
    nested = value.get("requests") if isinstance(value, dict) else None
    return sum(map(_calls_in, nested)) if isinstance(nested, list) else 1


def _record(raw: Any, position: int) -> Record:
    """One element of `requests`, its block ids packed at once; ValueError where it is no object or they are no ids."""
    if isinstance(raw, msgspec.Raw):
        records = decode(Batch("", [bytes(raw)], [position]), KEYS).records
        record = records[0] if records else None
    else:
        record = Record(position, raw) if isinstance(raw, dict) else None
    if record is None:
        raise ValueError(NOT_AN_OBJECT)
    ids = block_ids(record.value.get("hash_ids"))
    record.value["hash_ids"] = None if ids is None else np.array(ids, dtype=np.uint64)
    return record


def _nested(marker: Mapping[str, Any], calls: list[Call], marker_s: float, agent_id: str) -> Iterator[Call]:
    """The calls under a marker, on the session's clock: a marker stands where its sub-agent ended.

    Without a duration the end of its last call is taken for its own, except for one that was only launched there.
    """
    flags: tuple[str, ...] = ()
    try:
        duration_s = _span_s(marker.get("duration_ms"), "ms")
    except ValueError:
        duration_s = None
    if marker.get("status") == LAUNCHED:
        duration_s = duration_s or 0.0
    elif duration_s is None:
        flags = (ASSUMED_ARRIVAL,)
        duration_s = max((call.start_s + (_length_s(call.record) or 0.0) for call in calls), default=0.0)
    begin_s = marker_s - duration_s
    for call in calls:
        own = replace(call, start_s=begin_s + call.start_s, flags=(*call.flags, *flags))
        yield own if call.agent_id else replace(own, agent_id=agent_id)


def _span_s(value: Any, unit: str) -> float | None:
    """Seconds of a stamp or duration; None for unknown, ValueError where it is none or longer than any log."""
    span_s = seconds(value, unit, [])
    return None if span_s is None else in_range(span_s * 1_000_000) / 1_000_000


def _length_s(record: Record) -> float | None:
    try:
        return _span_s(record.value.get("api_time"), "s")
    except ValueError:
        return None
