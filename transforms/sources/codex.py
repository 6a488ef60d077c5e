"""Codex rollouts: a call is a change of the running token total; items before it say what was asked and answered.

Source: log_formats.md §8. `token_count` events repeat with unchanged totals (screen refreshes), and a forked rollout
starts with its parent's history stamped anew at the moment of the fork.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import Clock
from transforms.fields.decode import NOT_AN_OBJECT, at, decode
from transforms.fields.numbers import count
from transforms.fields.words import text
from transforms.finish import frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.decode import Record
    from transforms.fleet import Source

FORMAT = "codex"
UNIT = "file"
DEFAULTS: Mapping[str, Any] = {}

ARRIVAL_FROM_RESPONSE = "arrival_from_response"
USAGE = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
CACHE_WRITE = "cache_write_input_tokens"
ENVELOPE = {"timestamp", "type", "payload"}
REPLAY_GAP_US = 100_000
"""No two model calls end within 0.1 s of each other: leading totals of a fork that do were copied."""
FORK_RANK = -1


@dataclass
class Thread:
    """What is known so far while one rollout is read in order of time; stamps count us UTC."""

    session_id: str | None = None
    agent_id: str | None = None
    root: str | None = None
    is_fork: bool = False
    model: str | None = None
    totals: tuple[int, ...] = (0, 0, 0, 0)
    asked_us: int | None = None
    answered_us: int | None = None
    tool_calls: int = 0
    tool_results: int = 0
    next_asked_us: int | None = None
    next_results: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)


def recognise(head: Head) -> str | None:
    """Why `head` looks like a rollout: timestamp, type, payload envelopes of Codex's kinds."""
    kinds = ("session_meta", "turn_context", "response_item", "event_msg")
    if any(record.keys() >= ENVELOPE and record.get("type") in kinds for record in head.records):
        return "envelopes of timestamp, type and payload (session_meta, turn_context, event_msg)"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per change of the token total; copied history of a fork counts as duplicates."""
    del source  # a rollout has no ambiguity to settle
    decoded = decode(batch)
    rejects = [r for r in decoded.rejects if r.reason != NOT_AN_OBJECT]
    thread = Thread()
    for us, record in _in_order(decoded.records):
        try:
            _advance(thread, us, record)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    rows = _without_replay(thread)
    duplicates = len(thread.rows) - len(rows)
    ignored = len(batch.lines) - len(thread.rows) - len(rejects)
    return Parsed(frame(rows), rejects, ignored, duplicates)


def _in_order(records: list[Record]) -> list[tuple[int, Record]]:
    """Records with a stamp, by time and then by place: rollouts are not written in order of time."""
    stamped = []
    for record in records:
        try:
            us = Clock().instant_us(record.value.get("timestamp"), [])
        except ValueError:
            us = None
        if us is not None:
            stamped.append((us, record))
    return sorted(stamped, key=lambda pair: (pair[0], pair[1].position))


def _advance(thread: Thread, us: int, record: Record) -> None:
    kind, payload = record.value.get("type"), record.value.get("payload")
    if not isinstance(payload, dict):
        return
    if kind == "session_meta":
        _meet(thread, payload)
    elif kind == "turn_context":
        thread.model = text(payload.get("model")) or thread.model
    elif kind == "event_msg" and payload.get("type") == "user_message":
        _asked(thread, us, 0)
    elif kind == "event_msg" and payload.get("type") == "token_count" and isinstance(payload.get("info"), dict):
        _count(thread, us, record, payload["info"])
    elif kind == "response_item":
        _item(thread, us, payload)


def _meet(thread: Thread, meta: Mapping[str, Any]) -> None:
    """Take the first header as this rollout's own, and the last one's origin as the thread all copies share."""
    own = text(meta.get("id"))
    forked_from = text(meta.get("forked_from_id"))
    if thread.session_id is None:
        parent = text(at(meta, "source", "subagent", "thread_spawn", "parent_thread_id"))
        thread.session_id, thread.agent_id = (parent, own) if parent else (own, None)
    thread.is_fork = thread.is_fork or forked_from is not None
    thread.root = forked_from or own


def _item(thread: Thread, us: int, payload: Mapping[str, Any]) -> None:
    kind = str(payload.get("type"))
    if kind.endswith(("_output", "tool_result")):
        _asked(thread, us, 1)
    elif kind == "message" and payload.get("role") in ("user", "developer", "system"):
        _asked(thread, us, 0)
    elif kind in ("message", "reasoning") or kind.endswith("_call"):
        thread.answered_us = us
        thread.tool_calls += kind.endswith("_call")


def _asked(thread: Thread, us: int, results: int) -> None:
    """Note what the model is asked: for the call under way, or, once that has begun to answer, for the next."""
    if thread.answered_us is None:
        thread.asked_us = us
        thread.tool_results += results
    else:
        thread.next_asked_us = us
        thread.next_results += results


def _count(thread: Thread, us: int, record: Record, info: Mapping[str, Any]) -> None:
    flags = list(record.flags)
    total: Any = info.get("total_token_usage")
    last: Any = info.get("last_token_usage")
    counted: Any = total if isinstance(total, dict) else last
    if not isinstance(counted, dict):
        return
    totals = tuple(count(counted.get(name), flags) or 0 for name in USAGE)
    if totals == thread.totals:
        return
    if isinstance(last, dict):
        spent = tuple(count(last.get(name), flags) for name in USAGE)
    else:
        spent = tuple(now - before if now >= before else now for now, before in zip(totals, thread.totals, strict=True))
    if thread.asked_us is None:
        flags.append(ARRIVAL_FROM_RESPONSE)
    arrived_us = us if thread.asked_us is None else thread.asked_us
    ended_us = us if thread.answered_us is None else thread.answered_us
    thread.rows.append(
        {
            "source_position": record.position,
            "request_id": "-".join(map(str, (thread.root or "", *totals))),
            "precedence": FORK_RANK if thread.is_fork else 0,
            "session_id": thread.session_id,
            "agent_id": thread.agent_id,
            "arrived_at": arrived_us,
            "ended_at": ended_us if ended_us > arrived_us else None,  # no answer takes no time: its length is unknown
            "model": thread.model,
            "prompt_tokens": spent[0],
            "cached_prompt_tokens": spent[1],
            "cache_write_tokens": count(counted.get(CACHE_WRITE), flags) if counted is last else None,
            "output_tokens": spent[2],
            "reasoning_tokens": spent[3],
            "tool_calls": thread.tool_calls,
            "tool_results": thread.tool_results,
            "flags": flags,
            "counted_us": us,
        }
    )
    thread.totals = totals
    thread.asked_us, thread.answered_us = thread.next_asked_us, None
    thread.tool_calls, thread.tool_results = 0, thread.next_results
    thread.next_asked_us, thread.next_results = None, 0


def _without_replay(thread: Thread) -> list[dict[str, Any]]:
    """The rows that are the rollout's own: without the leading burst of a fork, if it has one."""
    rows, first = thread.rows, 0
    if thread.is_fork:
        for n in range(1, len(rows)):
            if rows[n]["counted_us"] - rows[n - 1]["counted_us"] >= REPLAY_GAP_US:
                break
            first = n + 1
    return [{name: value for name, value in row.items() if name != "counted_us"} for row in rows[first:]]
