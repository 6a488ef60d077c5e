"""Streamed answers of OpenAI's APIs put together again: chunks by completion id, events by response id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.fields.decode import at
from transforms.fields.words import finish_word, text
from transforms.sources._responses import OUTPUT_PARTIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.decode import Record

CHUNK = "chat.completion.chunk"
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


@dataclass
class Stream:
    """What is known of one answer from its events so far; the order they came in does not matter.

    `is_ended` says that an end was seen, `is_touched` that the present batch brought an event.
    """

    position: int
    flags: set[str] = field(default_factory=set)
    body: dict[str, Any] = field(default_factory=dict)
    around: dict[str, Any] = field(default_factory=dict)
    reasons: dict[int, str | None] = field(default_factory=dict)
    calls: dict[int, set[int]] = field(default_factory=dict)
    is_ended: bool = False
    is_touched: bool = True

    def take(self, record: Record) -> None:
        """Add one chunk or event."""
        self.is_touched = True
        if record.position <= self.position:
            self.position, self.around = record.position, _around(record.value)
        self.flags.update(record.flags)
        if record.value.get("object") == CHUNK:
            self._chunk(record.value)
        elif isinstance(record.value.get("response"), dict):
            self._event(record.value["response"], is_end=text(record.value.get("type")) in ENDS)

    def _chunk(self, chunk: Mapping[str, Any]) -> None:
        for name in ("id", "model"):
            self.body[name] = chunk.get(name) or self.body.get(name)
        stamps = [stamp for stamp in (chunk.get("created"), self.body.get("created")) if isinstance(stamp, int | float)]
        self.body["created"] = min(filter(None, stamps), default=None)
        if _output(chunk.get("usage")) >= _output(self.body.get("usage")):
            self.body["usage"] = chunk.get("usage")
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            number = _number(choice)
            reason = finish_word(at(choice, "finish_reason"))
            self.reasons[number] = reason or self.reasons.get(number)
            self.is_ended = self.is_ended or reason is not None
            asked = at(choice, "delta", "tool_calls")
            self.calls.setdefault(number, set()).update(map(_number, asked if isinstance(asked, list) else ()))

    def _event(self, response: dict[str, Any], *, is_end: bool) -> None:
        if is_end or not self.is_ended:
            self.body = response
        self.is_ended = self.is_ended or is_end

    def whole(self) -> dict[str, Any]:
        """The answer as one body; one whose end was not seen is flagged `output_partial`."""
        if not self.is_ended:
            self.flags.add(OUTPUT_PARTIAL)
        if not self.reasons:
            return self.body
        choices = [
            {"finish_reason": self.reasons[n], "message": {"tool_calls": [None] * len(self.calls.get(n, ()))}}
            for n in sorted(self.reasons)
        ]
        return {**self.body, "choices": choices}


def stream_id(record: Mapping[str, Any]) -> str | None:
    """The id of the answer that a chunk or event belongs to; None for a whole body."""
    if record.get("object") == CHUNK:
        return text(record.get("id"))
    if str(record.get("type")).startswith("response."):
        return text(at(record, "response", "id")) or text(record.get("response_id"))
    return None


def _number(item: Any) -> int:
    index = at(item, "index")
    return index if isinstance(index, int) else 0


def _output(usage: Any) -> float:
    """Rank of a usage among those of one stream: they count on, so the largest is the last."""
    output = at(usage, "completion_tokens")
    return output if isinstance(output, int | float) else -1 + 0.5 * isinstance(usage, dict)


def _around(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields a logger put beside an event, without what the API wrote."""
    return {name: record[name] for name in ("timestamp", "ts", "time", "request_time") if name in record}
