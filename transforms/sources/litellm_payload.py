"""LiteLLM's StandardLoggingPayload, as its s3, gcs and generic API loggers write it: one object an attempt.

Source: log_formats.md §1b (litellm/types/utils.py). The payload is the spend log's row under other names: it is brought
into that shape and read by its rules of attempts, status and tokens. Stamps are epoch seconds, or texts without a zone
that are UTC. `response_time` is the time to the first token of a stream and the whole time of any other answer.
`trace_id` joins retries, or names the session where the client gave one: it is a session nobody has proven. Prompts,
answers, headers and addresses are passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transforms.batches import Head, Parsed, Reject
from transforms.fields.decode import at, decode, inner
from transforms.fields.numbers import amount
from transforms.fields.words import text
from transforms.sources import litellm
from transforms.sources._litellm_row import row_of, rows_of_shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch
    from transforms.fleet import Source

FORMAT = "litellm-payload"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = litellm.DEFAULTS
KEYS = ("id", "startTime", "endTime", "completionStartTime", "status", "prompt_tokens", "completion_tokens")
OWN = frozenset({"response_time", "trace_id", "model_map_information", "hidden_params", "litellm_call_id", "call_id"})
"""Keys of which every version of the payload has some, and the spend log none beside `id`."""
ERROR_CLASS = re.compile(r"\w*(?:Error|Exception|Timeout)\b")
SAME_NAMES = (
    "id", "call_type", "startTime", "endTime", "model", "model_group", "custom_llm_provider", "cache_hit",
    "prompt_tokens", "completion_tokens", "request_tags",
)  # fmt: skip


def recognise(head: Head) -> str | None:
    """Why `head` looks like logged payloads: objects with id, call_type, startTime, endTime, without request_id."""
    for record in head.records:
        if record.keys() >= {"id", "call_type", "startTime", "endTime"} and OWN & record.keys():
            return None if "request_id" in record else "objects with id, call_type, startTime, endTime, response_time"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per attempt; calls of MCP tools are no requests and are ignored."""
    decoded = decode(batch, KEYS)
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = list(decoded.rejects)
    for record in decoded.records:
        flags = list(record.flags)
        try:
            row = row_of(spend_row(record.value), flags)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        rows.append({**row, "source_position": record.position, "flags": flags})
    return litellm.attempts(rows_of_shape(rows), rejects, batch.carry, source)


def spend_row(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload under the names of a spend-log row."""
    held = inner(payload.get("metadata"))
    metadata: dict[str, Any] = held if isinstance(held, dict) else {}
    response, hidden = inner(payload.get("response")), inner(payload.get("hidden_params"))
    tool = at(metadata, "mcp_tool_call_metadata")
    return {
        **{name: payload.get(name) for name in SAME_NAMES},
        "request_id": payload.get("id"),
        "litellm_call_id": payload.get("litellm_call_id") or payload.get("call_id"),
        "completionStartTime": _first_token(payload),
        "api_key": metadata.get("user_api_key_hash"),
        "user": metadata.get("user_api_key_user_id"),
        "team_id": metadata.get("user_api_key_team_id"),
        "organization_id": metadata.get("user_api_key_org_id"),
        "end_user": payload.get("end_user") or metadata.get("user_api_key_end_user_id"),
        "model_id": payload.get("model_id") or at(hidden, "model_id"),
        "session_id": payload.get("session_id") or payload.get("trace_id"),
        "agent_id": payload.get("agent_id"),
        "status": _said(payload),
        "mcp_namespaced_tool_name": at(tool, "namespaced_tool_name") or at(tool, "name"),
        "metadata": {
            **metadata,
            "usage_object": metadata.get("usage_object") or at(response, "usage"),
            "error_information": _error(payload, metadata),
            "model_parameters": inner(payload.get("model_parameters")),
        },
        "proxy_server_request": {"messages": inner(payload.get("messages"))},
        "response": response,
    }


def _said(payload: Mapping[str, Any]) -> Any:
    """Whether the call went well, in LiteLLM's words; payloads of 2024 have no status, only an error."""
    said = payload.get("status") or at(payload, "status_fields", "llm_api_status")
    return said or ("failure" if payload.get("error_str") or payload.get("error_information") else None)


def _first_token(payload: Mapping[str, Any]) -> Any:
    """When a stream's first token came; None for an answer that is known to have come whole."""
    stream, stamp = payload.get("stream"), payload.get("completionStartTime")
    if stream is False:
        return None
    if stamp is not None or stream is not True:
        return stamp
    try:
        start_s, elapsed_s = amount(payload.get("startTime"), []), amount(payload.get("response_time"), [])
    except ValueError:
        return None
    return None if start_s is None or elapsed_s is None else start_s + elapsed_s


def _error(payload: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Code and class of the error; where only its text was logged, the class that it names."""
    told = payload.get("error_information") or metadata.get("error_information")
    name = text(at(told, "error_class"))
    if name is None:
        found = ERROR_CLASS.search(text(payload.get("error_str")) or "")
        name = found[0] if found else None
    return {"error_code": at(told, "error_code"), "error_class": name}
