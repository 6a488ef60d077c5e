"""One row from one body of Anthropic's Messages API, or from the error that stands in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields.conservation import Usage, doubts
from transforms.fields.decode import at
from transforms.fields.numbers import count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import finish_status, text
from transforms.sources._responses import failure_of, http_code, stamp_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

STAMPS = ("ts", "timestamp", "created_at", "created", "time")
"""The API's bodies and events have no time: these are names under which a logger writes its own."""
ARRIVAL_FROM_RESPONSE = "arrival_from_response"


def body_row(
    position: int, body: Mapping[str, Any], around: Mapping[str, Any], flags: list[str], *, clock: Clock, source: Source
) -> dict[str, Any]:
    """The row of one message; `around` is the record it stands in, which may be the message itself."""
    usage = _usage(body.get("usage"), flags)
    reason = text(body.get("stop_reason"))
    content = body.get("content")
    if usage.is_missing:
        flags.append(USAGE_MISSING)
    if source.cached_tokens == "inside":
        flags += doubts(usage, "inside", "inside")
    logged_us = stamp_us(clock, flags, STAMPS, around, body)
    if logged_us is not None:
        flags.append(ARRIVAL_FROM_RESPONSE)
    return {
        "source_position": position,
        "request_id": text(body.get("id")) or text(around.get("request_id")),
        "arrived_at": logged_us,
        "model": text(body.get("model")),
        "operation": "chat",
        "status": failure_of(body.get("error"), http_code(around, body)) or finish_status(reason, flags),
        "finish_reason": reason,
        "prompt_tokens": usage.prompt,
        "cached_prompt_tokens": usage.cached,
        "cache_write_tokens": usage.written,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "tool_calls": _tool_calls(content) if isinstance(content, list) else None,
        "flags": flags,
    }


def _usage(usage: Any, flags: list[str]) -> Usage:
    """Counts as logged: the prompt without what was read from or written to the cache, the output with thinking."""
    if not isinstance(usage, dict):
        return Usage()
    written = count(usage.get("cache_creation_input_tokens"), flags)
    by_life = usage.get("cache_creation")
    if written is None and isinstance(by_life, dict):
        written = count(sum(count(tokens, flags) or 0 for tokens in by_life.values()), flags)
    details = usage.get("output_tokens_details")
    thinking = at(details, "thinking_tokens")
    return Usage(
        prompt=count(usage.get("input_tokens"), flags),
        cached=count(usage.get("cache_read_input_tokens"), flags),
        written=written,
        output=count(usage.get("output_tokens"), flags),
        reasoning=count(at(details, "reasoning_tokens") if thinking is None else thinking, flags),
    )


def _tool_calls(content: list[Any]) -> int:
    return sum(at(block, "type") == "tool_use" for block in content)
