"""Streamed messages put together again from their events, by message id, in whatever order the events lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.fields.decode import Record, at
from transforms.fields.numbers import count
from transforms.fields.words import text
from transforms.sources._anthropic_body import STAMPS
from transforms.sources._responses import stamp_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock

EVENTS = frozenset(
    {
        "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
        "content_block_stop", "ping", "error",
    }
)  # fmt: skip
COUNTED = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
NO_MESSAGE = "stream event of no known message"


@dataclass
class Message:
    """What is known of one message from its events so far.

    Counts of a stream are cumulative, so of each the largest is the final one. `is_ended` says that its stop was seen,
    `is_touched` that the present batch brought an event; stamps count us UTC.
    """

    position: int
    message_id: str
    usage: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    stop_reason: str | None = None
    error: Any = None
    tools: set[int] = field(default_factory=set)
    has_blocks: bool = False
    flags: set[str] = field(default_factory=set)
    started_us: int | None = None
    first_us: int | None = None
    last_us: int | None = None
    is_ended: bool = False
    is_touched: bool = True

    def take(self, record: Record, clock: Clock) -> None:
        """Add one event; ValueError, and nothing added, where it says something unusable."""
        event, flags = record.value, list(record.flags)
        kind = event.get("type")
        us = stamp_us(clock, flags, STAMPS, event)
        started = event.get("message") if kind == "message_start" else None
        usage = at(started, "usage") if isinstance(started, dict) else event.get("usage")
        self._count(usage, flags)
        self.flags.update(flags)
        self.is_touched, self.position = True, min(self.position, record.position)
        self.model = text(at(started, "model")) or self.model
        reason = text(at(started, "stop_reason")) or text(at(event, "delta", "stop_reason"))
        self.stop_reason = max(filter(None, (reason, self.stop_reason)), default=None)
        if isinstance(event.get("content_block"), dict):
            self.has_blocks = True
            if event["content_block"].get("type") == "tool_use":
                self.tools.add(_number(event))
        self.error = event.get("error") or self.error
        self.is_ended = self.is_ended or kind == "message_stop"
        self._time(us, str(kind))

    def _count(self, usage: Any, flags: list[str]) -> None:
        found = {name: count(at(usage, name), flags) for name in COUNTED}
        for name, tokens in found.items():
            self.usage[name] = _largest(tokens, self.usage.get(name))
        for name in ("output_tokens_details", "cache_creation"):
            if isinstance(at(usage, name), dict):
                self.usage[name] = usage[name]

    def _time(self, us: int | None, kind: str) -> None:
        if us is None:
            return
        self.first_us, self.last_us = _least(self.first_us, us), max(self.last_us or 0, us)
        if kind == "message_start":
            self.started_us = _least(self.started_us, us)

    def body(self) -> dict[str, Any]:
        """The message as the API would have answered it at once."""
        return {
            "id": self.message_id,
            "model": self.model,
            "stop_reason": self.stop_reason,
            "usage": {k: v for k, v in self.usage.items() if v is not None} or None,
            "content": [{"type": "tool_use"}] * len(self.tools) if self.has_blocks else None,
            "error": self.error,
        }


def event_of(record: Record) -> Record:
    """The event of a record: itself, or the `data` beside an `event` name, with the logger's stamps."""
    data = record.value.get("data")
    if "event" not in record.value or not isinstance(data, dict):
        return record
    around = {name: record.value[name] for name in (*STAMPS, "message_id") if name in record.value}
    return Record(record.position, {**around, **data}, record.flags)


def message_id(event: Mapping[str, Any]) -> str | None:
    """The id of the message that an event names."""
    return text(at(event, "message", "id")) or text(event.get("message_id"))


def _largest(one: int | None, other: int | None) -> int | None:
    return max((n for n in (one, other) if n is not None), default=None)


def _number(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1


def _least(known: int | None, us: int) -> int:
    return us if known is None else min(known, us)
