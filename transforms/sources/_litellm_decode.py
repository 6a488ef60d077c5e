"""Rows of LiteLLM's spend log from JSON: fast where typed as the proxy writes them, leniently value by value elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from transforms.batches import Reject
from transforms.fields.decode import DUPLICATE_KEY, NOT_AN_OBJECT, NOT_JSON, at, inner, parse_slowly
from transforms.fields.numbers import amount, count
from transforms.fields.words import finish_word, text
from transforms.sources._litellm_row import (
    Answer,
    Block,
    Choice,
    Details,
    ErrorInformation,
    Message,
    Metadata,
    Parameters,
    Request,
    Response,
    Row,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.batches import Batch


class Decoded(msgspec.Struct):
    """The rows of a batch with position and flags of each, and the records that are none."""

    rows: list[Row]
    positions: list[int]
    flags: list[list[str]]
    rejects: list[Reject]


_decode = msgspec.json.Decoder(Row).decode
_decode_metadata = msgspec.json.Decoder(Metadata).decode
_decode_request = msgspec.json.Decoder(Request).decode
_decode_response = msgspec.json.Decoder(Response).decode
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_UNIQUE = (b'"startTime":', b'"endTime":', b'"completion_tokens":')
"""Keys that stand once in a row, also in its nested objects."""


def decode_rows(batch: Batch) -> Decoded:
    """The spend-log rows of a batch."""
    out = Decoded([], [], [], [])
    is_doubtful = _may_repeat(batch.lines)
    for line, position in zip(batch.lines, batch.positions, strict=True):
        flags: list[str] = []
        try:
            row = _fast(line) if not is_doubtful or max(map(line.count, _UNIQUE)) <= 1 else None
            if row is None:
                row = _lenient(line, flags)
        except ValueError as error:
            out.rejects.append(Reject(position, str(error)))
            continue
        out.rows.append(row)
        out.positions.append(position)
        out.flags.append(flags)
    return out


def _may_repeat(lines: Sequence[bytes]) -> bool:
    block = b"\n".join(lines)
    return any(block.count(key) > len(lines) for key in _UNIQUE)


def _fast(line: bytes) -> Row | None:
    """The row of a line typed as the proxy writes it, JSON inside JSON decoded; None where a value is not so."""
    try:
        row = _decode(line)
        if isinstance(row.metadata, str):
            row.metadata = _decode_metadata(row.metadata) if row.metadata else None
        if isinstance(row.proxy_server_request, str):
            row.proxy_server_request = _decode_request(row.proxy_server_request) if row.proxy_server_request else None
        if isinstance(row.response, str):
            row.response = _decode_response(row.response) if row.response else None
    except _REFUSED:
        return None
    return row


_TEXTS = (
    "request_id", "litellm_call_id", "call_type", "api_key", "model", "model_id", "model_group", "user",
    "custom_llm_provider", "team_id", "organization_id", "end_user", "session_id", "agent_id", "status",
    "mcp_namespaced_tool_name", "exception_type", "status_code", "litellm_model_name",
)  # fmt: skip


def _lenient(line: bytes, flags: list[str]) -> Row:
    """The row of a line with values of any kind; ValueError with a fixed reason where one cannot be used."""
    try:
        value, odd = parse_slowly(line)
    except (ValueError, RecursionError):
        raise ValueError(NOT_JSON) from None
    if not isinstance(value, dict):
        raise ValueError(NOT_AN_OBJECT)  # noqa: TRY004 - one class for every unusable record
    flags += [flag for flag in odd if flag == DUPLICATE_KEY]
    return Row(
        **{name: text(value.get(name)) for name in _TEXTS},
        startTime=_time(value.get("startTime")),
        endTime=_time(value.get("endTime")),
        completionStartTime=_time(value.get("completionStartTime")),
        prompt_tokens=count(value.get("prompt_tokens"), flags),
        completion_tokens=count(value.get("completion_tokens"), flags),
        cache_hit=text(value.get("cache_hit")) or value.get("cache_hit") is True,
        request_tags=str(value.get("request_tags") or ""),
        metadata=_metadata(inner(value.get("metadata")), flags),
        proxy_server_request=_request(inner(value.get("proxy_server_request"))),
        response=_response(inner(value.get("response"))),
    )


def _time(value: Any) -> str | float | None:
    return value if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _metadata(value: Any, flags: list[str]) -> Metadata:
    queue_s = amount(at(value, "queue_time_seconds"), flags)
    return Metadata(
        status=text(at(value, "status")),
        usage_object=_usage(at(value, "usage_object"), flags),
        additional_usage_values=_usage(at(value, "additional_usage_values"), flags),
        error_information=ErrorInformation(
            text(at(value, "error_information", "error_code")), text(at(value, "error_information", "error_class"))
        ),
        attempted_retries=count(at(value, "attempted_retries"), flags),
        session_id=text(at(value, "session_id")),
        agent_id=text(at(value, "agent_id")),
        queue_time_seconds=None if queue_s is None else float(queue_s),
        model_parameters=_parameters(at(value, "model_parameters")),
        internal_call_origin=text(at(value, "internal_call_origin")),
    )


def _usage(value: Any, flags: list[str]) -> Usage:
    prompt, completion = at(value, "prompt_tokens_details"), at(value, "completion_tokens_details")
    return Usage(
        Details(
            cached_tokens=count(at(prompt, "cached_tokens"), flags),
            cache_creation_tokens=count(at(prompt, "cache_creation_tokens"), flags),
        ),
        Details(reasoning_tokens=count(at(completion, "reasoning_tokens"), flags)),
        count(at(value, "cache_read_input_tokens"), flags),
        count(at(value, "cache_creation_input_tokens"), flags),
    )


def _parameters(value: Any) -> Parameters:
    return Parameters(**{name: _limit(at(value, name)) for name in Parameters.__struct_fields__})


def _limit(value: Any) -> int | None:
    """A limit the caller set; one that is no whole number says nothing and rejects nothing."""
    try:
        return count(value, [])
    except ValueError:
        return None


def _request(value: Any) -> Request:
    asked = Request()
    messages = at(value, "messages")
    if isinstance(messages, list):
        asked.messages = [Message(text(at(m, "role")), _blocks(at(m, "content"))) for m in messages]
    for name in Parameters.__struct_fields__:
        setattr(asked, name, _limit(at(value, name)))
    return asked


def _blocks(content: Any) -> list[Block] | None:
    return [Block(text(at(part, "type"))) for part in content] if isinstance(content, list) else None


def _response(value: Any) -> Response:
    choices = at(value, "choices")
    made = [_choice(c) for c in choices] if isinstance(choices, list) else None
    return Response(made, text(at(value, "stop_reason")), _blocks(at(value, "content")))


def _choice(value: Any) -> Choice:
    calls = at(value, "message", "tool_calls")
    asked = [msgspec.Raw(b"{}")] * len(calls) if isinstance(calls, list) else None
    return Choice(finish_word(at(value, "finish_reason")), Answer(asked))
