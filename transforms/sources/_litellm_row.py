"""Shape of a row of LiteLLM's spend log: only what is used, the texts of prompts and answers are passed over.

Source: litellm/proxy/schema.prisma 1.110.2 (log_formats.md §1a). Rows exactly of this shape are read as columns; of
others `lenient` makes rows of it value by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.batches import Reject
from transforms.fields.decode import DUPLICATE_KEY, NOT_AN_OBJECT, NOT_JSON, at, inner, parse_slowly
from transforms.fields.numbers import count, seconds
from transforms.fields.words import finish_word, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch

TEXTS = (
    "request_id", "litellm_call_id", "call_type", "api_key", "startTime", "endTime", "completionStartTime", "model",
    "model_id", "model_group", "custom_llm_provider", "user", "team_id", "organization_id", "end_user", "cache_hit",
    "session_id", "agent_id", "status", "mcp_namespaced_tool_name",
    "exception_type", "status_code", "litellm_model_name",  # of the error log
)  # fmt: skip
DETAILS = pl.Struct({"cached_tokens": pl.Int64, "cache_creation_tokens": pl.Int64, "reasoning_tokens": pl.Int64})
USAGE = pl.Struct(
    {
        "prompt_tokens_details": DETAILS,
        "completion_tokens_details": DETAILS,
        "cache_read_input_tokens": pl.Int64,
        "cache_creation_input_tokens": pl.Int64,
    }
)
LIMITS: Mapping[str, Any] = dict.fromkeys(("max_completion_tokens", "max_tokens", "max_output_tokens", "n"), pl.Int64)
METADATA = pl.Struct(
    {
        "status": pl.String,
        "usage_object": USAGE,
        "additional_usage_values": USAGE,
        "error_information": pl.Struct({"error_code": pl.String, "error_class": pl.String}),
        "attempted_retries": pl.Int64,
        "session_id": pl.String,
        "agent_id": pl.String,
        "queue_time_seconds": pl.Float64,
        "model_parameters": pl.Struct(LIMITS),
        "internal_call_origin": pl.String,
    }
)
REQUEST = pl.Struct({**LIMITS, "messages": pl.List(pl.Struct({"role": pl.String}))})
CALLS = pl.List(pl.Struct({"id": pl.String}))
CHOICE = pl.Struct({"finish_reason": pl.String, "message": pl.Struct({"tool_calls": CALLS})})
PARTS = pl.List(pl.Struct({"type": pl.String}))
RESPONSE = pl.Struct({"choices": pl.List(CHOICE), "stop_reason": pl.String, "content": PARTS})
"""In OpenAI's form, or in Anthropic's: of the content's parts only their kind."""
SHAPE: Mapping[str, pl.DataType] = {
    **dict.fromkeys(TEXTS, pl.String()),
    "prompt_tokens": pl.Int64(),
    "completion_tokens": pl.Int64(),
    "request_tags": pl.List(pl.String),
    "metadata": METADATA,
    "proxy_server_request": REQUEST,
    "response": RESPONSE,
}
LENIENT_IF = (b'"tool_result"',)
"""Kind of a message's part in Anthropic's form: only the lenient way looks into messages."""


def lenient(batch: Batch) -> tuple[pl.DataFrame, list[Reject]]:
    """The lines of `batch` as rows of SHAPE with `source_position` and `flags`, and the rejects."""
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    for line, position in zip(batch.lines, batch.positions, strict=True):
        flags: list[str] = []
        try:
            row = _row(line, flags)
        except ValueError as error:
            rejects.append(Reject(position, str(error)))
            continue
        rows.append({**row, "source_position": position, "flags": flags})
    return rows_of_shape(rows), rejects


def rows_of_shape(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as `row_of` makes them, each with its `source_position` and `flags`, as one frame."""
    schema = {**SHAPE, "source_position": pl.Int64(), "flags": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(line: bytes, flags: list[str]) -> dict[str, Any]:
    """The row of a line with values of any kind; ValueError with a fixed reason where one cannot be used."""
    try:
        value, odd = parse_slowly(line)
    except (ValueError, RecursionError):
        raise ValueError(NOT_JSON) from None
    if not isinstance(value, dict):
        raise ValueError(NOT_AN_OBJECT)  # noqa: TRY004 - one class for every unusable record
    flags += [flag for flag in odd if flag == DUPLICATE_KEY]
    return row_of(value, flags)


def row_of(value: Mapping[str, Any], flags: list[str]) -> dict[str, Any]:
    """The row of one decoded record with values of any kind; ValueError with a fixed reason where one is of no use."""
    tags = value.get("request_tags")
    return {
        **{name: _text(value.get(name)) for name in TEXTS},
        "prompt_tokens": count(value.get("prompt_tokens"), flags),
        "completion_tokens": count(value.get("completion_tokens"), flags),
        "request_tags": [str(tag) for tag in (tags if isinstance(tags, list) else [tags]) if tag],
        "metadata": _metadata(inner(value.get("metadata")), flags),
        "proxy_server_request": _request(inner(value.get("proxy_server_request"))),
        "response": _response(inner(value.get("response"))),
    }


def _text(value: Any) -> str | None:
    """A value of a text column: `true` too, which older proxies write for a cache hit."""
    return str(value).lower() if isinstance(value, bool) else text(value)


def _metadata(value: Any, flags: list[str]) -> dict[str, Any]:
    error = at(value, "error_information")
    return {
        "status": text(at(value, "status")),
        "usage_object": _usage(at(value, "usage_object"), flags),
        "additional_usage_values": _usage(at(value, "additional_usage_values"), flags),
        "error_information": {name: text(at(error, name)) for name in ("error_code", "error_class")},
        "attempted_retries": count(at(value, "attempted_retries"), flags),
        "session_id": text(at(value, "session_id")),
        "agent_id": text(at(value, "agent_id")),
        "queue_time_seconds": seconds(at(value, "queue_time_seconds"), "s", flags),
        "model_parameters": _limits(at(value, "model_parameters")),
        "internal_call_origin": text(at(value, "internal_call_origin")),
    }


def _usage(value: Any, flags: list[str]) -> dict[str, Any]:
    prompt, completion = at(value, "prompt_tokens_details"), at(value, "completion_tokens_details")
    return {
        "prompt_tokens_details": {
            name: count(at(prompt, name), flags) for name in ("cached_tokens", "cache_creation_tokens")
        },
        "completion_tokens_details": {"reasoning_tokens": count(at(completion, "reasoning_tokens"), flags)},
        "cache_read_input_tokens": count(at(value, "cache_read_input_tokens"), flags),
        "cache_creation_input_tokens": count(at(value, "cache_creation_input_tokens"), flags),
    }


def _limits(value: Any) -> dict[str, int | None]:
    return {name: _limit(at(value, name)) for name in LIMITS}


def _limit(value: Any) -> int | None:
    """A limit the caller set; one that is no whole number says nothing and rejects nothing."""
    try:
        return count(value, [])
    except ValueError:
        return None


def _request(value: Any) -> dict[str, Any]:
    messages = at(value, "messages")
    spoken = [{"role": _role(m)} for m in messages] if isinstance(messages, list) else None
    return {**_limits(value), "messages": spoken}


def _role(message: Any) -> str | None:
    """Who speaks; a user's message whose parts are tool results (Anthropic's form) speaks for the tool."""
    content = at(message, "content")
    parts = content if isinstance(content, list) else []
    return "tool" if any(at(part, "type") == "tool_result" for part in parts) else text(at(message, "role"))


def _response(value: Any) -> dict[str, Any]:
    choices, content = at(value, "choices"), at(value, "content")
    return {
        "choices": [_choice(choice) for choice in choices] if isinstance(choices, list) else None,
        "stop_reason": text(at(value, "stop_reason")),
        "content": [{"type": text(at(part, "type"))} for part in content] if isinstance(content, list) else None,
    }


def _choice(value: Any) -> dict[str, Any]:
    calls = at(value, "message", "tool_calls")
    asked = [{"id": None} for _ in calls] if isinstance(calls, list) else None
    return {"finish_reason": finish_word(at(value, "finish_reason")), "message": {"tool_calls": asked}}
