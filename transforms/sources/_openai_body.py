"""One row from one body of OpenAI's APIs: chat and text completions, Responses, embeddings, moderations, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields.conservation import Usage, doubts
from transforms.fields.decode import at
from transforms.fields.numbers import count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import finish_status, finish_word, text
from transforms.sources._responses import OUTPUT_PARTIAL, failure_of, http_code, stamp_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

CREATED = ("created", "created_at")
AROUND = ("timestamp", "ts", "time", "request_time")
"""Names a logger gives the time it wrote a body that has none of its own."""
OPERATIONS = {"embedding": "embedding", "moderation": "moderation", "image": "other", "transcription": "other"}
CLIENT_CALLS = frozenset(
    {
        "function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call",
        "mcp_approval_request",
    }
)  # fmt: skip
"""Items of a Responses output that the client has to answer; web or file search and the like run on the server."""
UNFINISHED = frozenset({"in_progress", "queued"})


def body_row(
    position: int, body: Mapping[str, Any], around: Mapping[str, Any], flags: list[str], *, clock: Clock, source: Source
) -> dict[str, Any]:
    """The row of one body; `around` is the record it stands in, which may be the body itself."""
    usage = _usage(body.get("usage"), flags)
    calls = _tool_calls(body)
    word = _word(body)
    failure = failure_of(body.get("error") or around.get("error"), http_code(around, body))
    if failure is None and text(body.get("status")) in UNFINISHED:
        flags.append(OUTPUT_PARTIAL)
    if usage.is_missing:
        flags.append(USAGE_MISSING)
    flags += doubts(usage, source.cached_tokens or "inside", source.reasoning_tokens or "inside")
    created_us = stamp_us(clock, flags, CREATED, body)
    choices = body.get("choices")
    return {
        "source_position": position,
        "request_id": text(body.get("id")),
        "session_id": text(at(body, "conversation", "id")) or text(body.get("conversation")),
        "arrived_at": stamp_us(clock, flags, AROUND, around) if created_us is None else created_us,
        "ended_at": stamp_us(clock, flags, ("completed_at",), body),
        "model": text(body.get("model")),
        "tenant": text(body.get("safety_identifier")) or text(body.get("user")),
        "operation": operation_of(body),
        "status": failure or finish_status(word, flags),
        "finish_reason": word,
        "prompt_tokens": usage.prompt,
        "cached_prompt_tokens": usage.cached,
        "cache_write_tokens": usage.written,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "requested_output_tokens": count(body.get("max_output_tokens"), flags),
        "choices": len(choices) or None if isinstance(choices, list) else None,
        "tool_calls": calls,
        "flags": flags,
    }


def _usage(usage: Any, flags: list[str]) -> Usage:
    """Counts under the names of either API, and those of DeepSeek and Moonshot for cached tokens."""
    if not isinstance(usage, dict):
        return Usage()
    of_prompt = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    of_output = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    cached = (at(of_prompt, "cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens"))
    prompt = count(_first(usage.get("prompt_tokens"), usage.get("input_tokens")), flags)
    output = count(_first(usage.get("completion_tokens"), usage.get("output_tokens")), flags)
    total = count(usage.get("total_tokens"), flags)
    if output is None and total is not None and total == prompt:
        output = 0  # embeddings name no output
    return Usage(
        prompt=prompt,
        cached=count(_first(*cached), flags),
        written=count(at(of_prompt, "cache_write_tokens"), flags),
        output=output,
        reasoning=count(at(of_output, "reasoning_tokens"), flags),
        total=total,
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _word(body: Mapping[str, Any]) -> str | None:
    """The source's own word for how the answer ended: the first choice's, or what a Responses object says of itself."""
    choices = body.get("choices")
    if isinstance(choices, list):
        words = (finish_word(at(choice, "finish_reason")) for choice in choices)
        return next((word for word in words if word), None)
    if body.get("object") == "response":
        return text(at(body, "incomplete_details", "reason")) or text(body.get("status"))
    return None


def _tool_calls(body: Mapping[str, Any]) -> int | None:
    """Calls the answer asks its client for; None where the answer was not logged."""
    choices, output = body.get("choices"), body.get("output")
    if isinstance(choices, list):
        messages = [at(choice, "message") for choice in choices]
        if not any(isinstance(message, dict) for message in messages):
            return None
        listed = [at(message, "tool_calls") for message in messages]
        single = sum(bool(at(message, "function_call")) for message in messages)
        return single + sum(len(calls) for calls in listed if isinstance(calls, list))
    return sum(text(at(item, "type")) in CLIENT_CALLS for item in output) if isinstance(output, list) else None


def operation_of(body: Mapping[str, Any]) -> str:
    """What the body answers: chat unless its data or results say otherwise."""
    data, results = body.get("data"), body.get("results")
    kind = text(at(data[0], "object")) if isinstance(data, list) and data else None
    if isinstance(results, list) and str(body.get("id")).startswith("modr-"):
        kind = "moderation"
    return OPERATIONS.get(kind or "", "chat")
