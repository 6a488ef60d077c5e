"""Traces of NVIDIA Dynamo: the frontend's request trace, and the agent workloads its simulator replays.

Source: ai-dynamo/dynamo docs (request replay tracing, DynoSim trace formats). Of `dynamo.request.trace.v1` a
`request_end` is a request, received and ended by the wall clock; `tool_end` says what the session's next request waited
for; everything else is ignored. `dynamo.agentic_mooncake` and the sessions of Applied Compute's TRIE have no wall
clock: what follows a request arrives as early as it can (`assumed_arrival`), since nobody knows how long that took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.fields.clock import Clock, in_range
from transforms.fields.decode import Record, at, decode
from transforms.fields.numbers import block_ids, count, seconds, small_count
from transforms.fields.words import finish_status, text
from transforms.finish import frame
from transforms.sources._dynamo_replay import node_row, session_rows
from transforms.sources._trace_line import HASH_BLOCK_MISMATCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch, Head
    from transforms.fleet import Source

FORMAT = "dynamo"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {}
SCHEMAS = ("dynamo.request.trace.", "dynamo.agentic_mooncake")
GRAPH = "dynamo.agentic_mooncake"
SESSION_KEYS = frozenset({"num_turns", "input_prompt_length", "assistant_response_length", "tool_call_latency"})
TOOL_ENDS = ("tool_end", "tool_error")
NOT_A_RECORD = "no record of a Dynamo trace"
CLOCK = Clock(unit="ms")
SLACK_US = 50_000
"""A request may arrive this much before the end of the tool it waited for: the stamps are of two processes."""


def recognise(head: Head) -> str | None:
    """Why `head` looks like a trace of Dynamo: its schema named in a line, or sessions of turns and tool latencies."""
    for record in head.records:
        schema = text(_event(record).get("schema")) or ""
        if schema.startswith(SCHEMAS):
            return f"lines of schema {schema}"
        if record.keys() >= SESSION_KEYS:
            return "sessions with num_turns, input_prompt_length, tool_call_latency"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request; of a workload's session one row per turn."""
    decoded = decode(batch)
    rows: list[dict[str, Any]] = []
    rejects, ignored = list(decoded.rejects), 0
    for record in decoded.records:
        try:
            made = _rows(Record(record.position, _event(record.value), record.flags), source, batch.carry)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        ignored += not made
        rows += made
    return Parsed(frame(rows), rejects, ignored)


def _event(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record itself, or what the recorder's envelope holds."""
    event = record.get("event")
    return event if isinstance(event, dict) and "schema" in event else dict(record)


def _rows(record: Record, source: Source, carry: dict[str, Any]) -> list[dict[str, Any]]:
    value = record.value
    if value.keys() >= SESSION_KEYS:
        return session_rows(record, source, carry)
    if "play_id" in value:
        return [node_row(record, source, carry)]
    if value.get("schema") == GRAPH:
        carry["block_tokens"] = small_count(value.get("block_size"), [])
        return []
    kind = text(value.get("event_type"))
    if kind is None:
        raise ValueError(NOT_A_RECORD)
    if kind in TOOL_ENDS:
        _keep_tool(value, carry)
    return [_request_row(record, carry)] if kind == "request_end" else []


def _request_row(record: Record, carry: dict[str, Any]) -> dict[str, Any]:
    value, flags = record.value, list(record.flags)
    request, ended = value.get("request"), CLOCK.instant_us(value.get("event_time_unix_ms"), flags)
    received = CLOCK.instant_us(at(request, "request_received_ms"), flags)
    total_s = seconds(at(request, "total_time_ms"), "ms", flags)
    if received is None and ended is not None and total_s is not None:
        received = in_range(ended - total_s * 1_000_000)
    context = value.get("agent_context")
    own, told = text(at(context, "session_id")), at(request, "finish_reason_metadata")
    word, calls = text(at(told, "finish_reason")) or text(at(request, "finish_reason")), at(told, "tool_calls")
    root = _root(own, text(at(context, "parent_session_id")), carry)
    prompt = count(at(request, "replay", "input_length") or at(request, "input_tokens"), flags)
    results, wait_s = _waited(own, received, carry)
    return {
        "source_position": record.position,
        "request_id": text(at(request, "request_id")),
        "session_id": root,
        "agent_id": None if root == own else own,
        "arrived_at": received,
        "ended_at": ended,
        "model": text(at(request, "model")),
        "status": finish_status(word, flags),
        "finish_reason": word,
        "prompt_tokens": prompt,
        "cached_prompt_tokens": count(at(request, "cached_tokens"), flags),
        "output_tokens": count(at(request, "output_tokens"), flags),
        "ttft_s": seconds(at(request, "ttft_ms"), "ms", flags),
        "e2e_s": total_s,
        "tool_calls": len(calls) if isinstance(calls, list) else None,
        "tool_results": results,
        "logged_tool_wait_s": wait_s,
        **_blocks(at(request, "replay"), prompt, flags),
        "flags": flags,
    }


def _root(own: str | None, parent: str | None, carry: dict[str, Any]) -> str | None:
    """The session at the top of those that started one another."""
    roots: dict[str, str] = carry.setdefault("roots", {})
    if own is None or parent is None:
        return own
    roots[own] = roots.get(parent, parent)
    return roots[own]


def _blocks(replay: Any, prompt: int | None, flags: list[str]) -> dict[str, Any]:
    """Rolling hashes of the prompt's blocks: what they name is the same in every file."""
    size, ids = small_count(at(replay, "trace_block_size"), flags), block_ids(at(replay, "input_sequence_hashes"))
    if ids is not None and not (size and prompt is not None and len(ids) == -(-prompt // size)):
        flags.append(HASH_BLOCK_MISMATCH)
        ids = None
    return {"prefix_block_tokens": None if ids is None else size, "prefix_block_ids": ids}


def _keep_tool(value: Mapping[str, Any], carry: dict[str, Any]) -> None:
    """Remember when a session's tool ran, for its next request."""
    session = text(at(value, "agent_context", "session_id")) or text(value.get("session_id"))
    stamps = [at(value, "tool", name) for name in ("started_at_unix_ms", "ended_at_unix_ms")]
    started, ended = (CLOCK.instant_us(stamp, []) for stamp in stamps)
    if session is not None and started is not None and ended is not None:
        carry.setdefault("tools", {}).setdefault(session, []).append((started, ended))


def _waited(session: str | None, arrived_us: int | None, carry: dict[str, Any]) -> tuple[int | None, float | None]:
    """How many of the session's tools ended before this request, and how long they took together."""
    tools: Sequence[tuple[int, int]] = carry.get("tools", {}).get(session, ())
    done = [tool for tool in tools if arrived_us is not None and tool[1] <= arrived_us + SLACK_US]
    if not done:
        return None, None
    carry["tools"][session] = [tool for tool in tools if tool not in done]
    return len(done), (max(end for _, end in done) - min(start for start, _ in done)) / 1_000_000
