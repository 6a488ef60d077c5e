"""LiteLLM's spend log (JSON lines, `/spend/logs` array, psql CSV): one row per attempt of a call.

Source: log_formats.md §1a. Zero tokens are unknown tokens unless `zero_usage = "zero"`; stamps without a zone are UTC
(PR 8190); `cache_hit` means the gateway's own cache; `session_id` falls back to a trace id that may be one per request,
so a session that only it proves carries the flag `session_unproven` and is one from its second row on.
"""

from __future__ import annotations

import re
from itertools import starmap
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.batches import Head, Parsed, Reject
from transforms.fields.clock import clock_of
from transforms.fields.columns import instants
from transforms.fields.usage import USAGE_MISSING, settle_usage
from transforms.fields.words import failure_status, finish_status
from transforms.finish import flagged
from transforms.sources._litellm_decode import decode_rows
from transforms.sources._litellm_row import Block, Message, Metadata, Request, Response, Row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch
    from transforms.fields.columns import Column
    from transforms.fleet import Source

FORMAT = "litellm"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {"timezone": "UTC", "zero_usage": "missing"}

OPERATIONS = {
    # litellm CallTypes, without the leading "a" of the asynchronous ones
    "completion": "chat", "text_completion": "chat", "responses": "chat", "anthropic_messages": "chat",
    "generate_content": "chat", "generate_content_stream": "chat", "": "chat",
    "embedding": "embedding", "rerank": "rerank", "moderation": "moderation",
    "create_batch": "batch", "retrieve_batch": "batch", "cancel_batch": "batch", "list_batches": "batch",
}  # fmt: skip
PASSED_ON = "pass_through_endpoint"
SUFFIX = re.compile(r"(_cache_hit)\d+(\.\d+)?$|(_batch_cost)$|_(guardrail|video)[\w.]*$")
SESSION_UNPROVEN = "session_unproven"
AGGREGATE = "aggregate"
SYNTHETIC = "synthetic"
HEALTH = ("health-check", "health_check")
STAMPS = {"arrived_at": "startTime", "ended_at": "endTime", "first_token_at": "completionStartTime"}


def recognise(head: Head) -> str | None:
    """Why `head` looks like a spend log: rows with startTime, endTime, call_type and the spend of an api_key."""
    wanted = {"request_id", "startTime", "endTime", "call_type"}
    if any(wanted <= record.keys() and "trace_id" not in record and "id" not in record for record in head.records):
        return "rows with request_id, call_type, startTime, endTime"
    return "columns request_id, call_type, startTime, endTime" if wanted <= set(head.columns) else None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per attempt; rows of MCP tools are no requests and are ignored."""
    decoded = decode_rows(batch)
    is_request = [not row.mcp_namespaced_tool_name for row in decoded.rows]
    rows = [row for row, is_kept in zip(decoded.rows, is_request, strict=True) if is_kept]
    ignored = len(decoded.rows) - len(rows)
    if not rows:
        return Parsed(pl.DataFrame(), decoded.rejects, ignored)
    flags = [words for words, is_kept in zip(decoded.flags, is_request, strict=True) if is_kept]
    positions = [position for position, is_kept in zip(decoded.positions, is_request, strict=True) if is_kept]
    frame = _columns(rows).with_columns(
        source_position=pl.Series(positions, dtype=pl.Int64), flags=pl.Series(flags, dtype=pl.List(pl.String))
    )
    frame, rejects = _with_times(frame, rows, batch.carry, source)
    return Parsed(_settled(frame, source), [*decoded.rejects, *rejects], ignored)


def _columns(rows: list[Row]) -> pl.DataFrame:
    """The values of each row that need no other row."""
    records = list(map(_record, rows))
    return pl.DataFrame(dict(zip(RECORD, zip(*records, strict=True), strict=True)), schema=RECORD, strict=True)


RECORD: dict[str, Any] = {
    "request_id": pl.String, "record_id": pl.String, "attempt": pl.Int32, "session_id": pl.String,
    "agent_id": pl.String, "model": pl.String, "tenant": pl.String, "operation": pl.String, "served_by": pl.String,
    "replica_id": pl.String, "status": pl.String, "finish_reason": pl.String, "prompt_tokens": pl.Int64,
    "cached_prompt_tokens": pl.Int64, "cache_write_tokens": pl.Int64, "output_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64, "requested_output_tokens": pl.Int64, "choices": pl.Int32, "queue_s": pl.Float64,
    "tool_calls": pl.Int32, "tool_results": pl.Int32, "is_unproven": pl.Boolean, "is_synthetic": pl.Boolean,
    "is_refusal": pl.Boolean,
}  # fmt: skip
_NO_METADATA, _NO_REQUEST, _NO_RESPONSE = Metadata(), Request(), Response()


def _record(row: Row) -> tuple[Any, ...]:
    """The values of RECORD for one row."""
    metadata = row.metadata if isinstance(row.metadata, Metadata) else _NO_METADATA
    asked = row.proxy_server_request if isinstance(row.proxy_server_request, Request) else _NO_REQUEST
    answer = row.response if isinstance(row.response, Response) else _NO_RESPONSE
    request_id, suffix = _without_suffix(row.request_id)
    operation = "batch" if suffix == "_batch_cost" else _operation(row)
    is_hit = suffix == "_cache_hit" or str(row.cache_hit).lower() == "true"
    reason = _finish_reason(answer)
    odd: list[str] = []
    status = _status(row, metadata) or finish_status(reason, odd)
    session = metadata.session_id or row.session_id or None
    retries = metadata.attempted_retries
    call = row.litellm_call_id or None
    own = row.request_id if call or suffix else None
    limit, choices = _limits(asked, metadata)
    return (
        call or request_id,
        own,
        None if retries is None or not call else retries + 1,
        session,
        row.agent_id or metadata.agent_id or None,
        _model(row),
        row.team_id or row.organization_id or row.end_user or row.user or row.api_key or None,
        operation,
        "gateway_cache" if is_hit else "backend",
        row.model_id or None,
        status,
        reason,
        row.prompt_tokens,
        *_cached(metadata),
        row.completion_tokens,
        _reasoning(metadata),
        limit,
        choices,
        metadata.queue_time_seconds,
        _tool_calls(answer),
        _tool_results(asked),
        session is not None and not metadata.session_id,
        _is_synthetic(row, metadata),
        bool(odd),
    )


def _without_suffix(request_id: str | None) -> tuple[str | None, str]:
    """The id without what LiteLLM appends to it, and what that was."""
    if not request_id:
        return None, ""
    match = SUFFIX.search(request_id)
    if match is None:
        return request_id, ""
    return request_id[: match.start()] or request_id, match[1] or match[3] or match[0]


def _operation(row: Row) -> str:
    name = row.call_type or ""
    if name == PASSED_ON:
        return "chat" if row.prompt_tokens or row.completion_tokens else "other"
    return OPERATIONS.get(name) or OPERATIONS.get(name.removeprefix("a"), "other")


def _model(row: Row) -> str | None:
    """The public name: that of the model group, else the model's without its provider."""
    name = row.model_group or row.model or row.litellm_model_name or None
    if row.model_group or not name or not row.custom_llm_provider:
        return name
    return name.removeprefix(f"{row.custom_llm_provider}/") or name


def _status(row: Row, metadata: Metadata) -> str | None:
    """Status of a failed attempt; None for one that ended with an answer."""
    if row.exception_type:
        return failure_status(row.status_code, row.exception_type)
    if (row.status or metadata.status or "success").lower() != "failure":
        return None
    error = metadata.error_information
    code, words = (error.error_code, error.error_class or "") if error else (None, "")
    return "rejected" if words == REFUSED_PROMPT else failure_status(code, words)


REFUSED_PROMPT = "ContextWindowExceededError"
"""The backend refused the prompt for its length: it never held KV (planner.md §2)."""


def _cached(metadata: Metadata) -> tuple[int | None, int | None]:
    """Cached and cache-write tokens, from wherever the version of the proxy puts them."""
    read = write = None
    for usage in (metadata.usage_object, metadata.additional_usage_values):
        if usage is None:
            continue
        details = usage.prompt_tokens_details
        if details is not None:
            read = details.cached_tokens if read is None else read
            write = details.cache_creation_tokens if write is None else write
        read = usage.cache_read_input_tokens if read is None else read
        write = usage.cache_creation_input_tokens if write is None else write
    return read, write


def _reasoning(metadata: Metadata) -> int | None:
    usage = metadata.usage_object
    details = usage.completion_tokens_details if usage is not None else None
    return details.reasoning_tokens if details is not None else None


def _limits(asked: Request, metadata: Metadata) -> tuple[int | None, int | None]:
    """The caller's own output limit and number of choices, where logged."""
    limit = choices = None
    for given in (metadata.model_parameters, asked):
        if given is None:
            continue
        named = (given.max_completion_tokens, given.max_tokens, given.max_output_tokens)
        limit = next((value for value in named if value is not None), None) if limit is None else limit
        choices = given.n if choices is None else choices
    return limit, choices


def _finish_reason(answer: Response) -> str | None:
    if answer.choices:
        return answer.choices[0].finish_reason
    return answer.stop_reason


def _tool_calls(answer: Response) -> int | None:
    """Calls the response asks for; None where the response was not logged."""
    if answer.choices:
        return sum(len(c.message.tool_calls or ()) for c in answer.choices if c.message is not None)
    return None if answer.content is None else sum(block.type == "tool_use" for block in answer.content)


def _tool_results(asked: Request) -> int | None:
    """Results that this prompt adds: those after the last answer in it; None where messages were not logged."""
    if asked.messages is None:
        return None
    results = 0
    for message in reversed(asked.messages):
        if message.role == "assistant":
            break
        results += _results_in(message)
    return results


def _results_in(message: Message) -> int:
    if message.role in ("tool", "function"):
        return 1
    blocks: list[Block] = message.content if isinstance(message.content, list) else []
    return sum(block.type == "tool_result" for block in blocks)


def _is_synthetic(row: Row, metadata: Metadata) -> bool:
    """Whether the gateway itself made the call to see whether a backend is alive."""
    marks = (row.user, row.team_id, row.end_user, row.api_key, metadata.internal_call_origin, row.request_tags)
    return any(word in str(mark) for mark in marks if mark for word in HEALTH)


def _with_times(
    frame: pl.DataFrame, rows: list[Row], carry: dict[str, Any], source: Source
) -> tuple[pl.DataFrame, list[Reject]]:
    """`frame` with its instants; rows whose start, end or first token is no time are rejected."""
    reasons: list[pl.Series] = []
    for name, field in (
        ("arrived_at", "startTime"),
        ("ended_at", "endTime"),
        ("first_token_at", "completionStartTime"),
    ):
        column = _instants(list(map(attrgetter(field), rows)), carry.setdefault(field, {}), source)
        frame = frame.with_columns(column.values.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(name))
        if column.reasons is not None:
            reasons.append(column.reasons)
        for word, where in column.flags:
            frame = flagged(frame, where, word)
    if not reasons:
        return frame, []
    reason = pl.select(pl.coalesce(reasons)).to_series()
    bad = frame.filter(reason.is_not_null())["source_position"]
    return frame.filter(reason.is_null()), list(starmap(Reject, zip(bad, reason.drop_nulls(), strict=True)))


def _instants(values: list[str | float | None], carry: dict[str, Any], source: Source) -> Column:
    cells = [value if value is None or isinstance(value, str) else repr(value) for value in values]
    return instants(pl.Series(cells, dtype=pl.String), clock_of(source, carry), is_json=False)


def _settled(frame: pl.DataFrame, source: Source) -> pl.DataFrame:
    """`frame` with what follows from several of its columns: unknown tokens and first tokens, flags."""
    first = pl.col("first_token_at")
    is_stand_in = (first == pl.col("ended_at")) & (pl.col("output_tokens").fill_null(0) != 1)
    is_failed = ~pl.col("status").is_in(["ok", "length"]) & (pl.col("output_tokens").fill_null(0) == 0)
    frame = frame.with_columns(first_token_at=pl.when(~(is_stand_in | is_failed).fill_null(value=False)).then(first))
    counted = frame["prompt_tokens"].fill_null(0) + frame["output_tokens"].fill_null(0) > 0
    flags = (
        (AGGREGATE, (frame["operation"] == "batch") & counted),
        (SYNTHETIC, frame["is_synthetic"]),
        (SESSION_UNPROVEN, frame["is_unproven"]),
        ("refusal", frame["is_refusal"]),
        (USAGE_MISSING, frame["prompt_tokens"].is_null() & frame["output_tokens"].is_null()),
    )
    for word, where in flags:
        if where.any():
            frame = flagged(frame, where, word)
    return settle_usage(frame, source).drop("is_synthetic", "is_unproven", "is_refusal")
