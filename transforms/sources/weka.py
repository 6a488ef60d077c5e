"""Agent sessions of kv-cache-tester (WEKA): one JSON document a session, its calls in `requests`, sub-agents nested.

Source: kv-cache-tester's docs/trace_replay_tester.md and the traces README. `t` is seconds from the session's start,
`api_time` the time to the end, `think_time` runs from the end of the last call that has an `api_time`. When a session
starts is not in the file: at the origin, or, under `session_rate_per_s`, at a point of a Poisson process of that rate
(flag `assumed_start`). Kinds, not counts, of prompt and answer parts are logged: 1 call or result means at least one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import in_range, origin_us
from transforms.fields.decode import decode
from transforms.fields.numbers import count, seconds, small_count
from transforms.fields.words import TOOL_REASONS, finish_status, text
from transforms.finish import frame
from transforms.sources._weka_document import Call, Document, Outcome, calls_of, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Source

FORMAT = "weka"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {}

BLOCK_TOKENS = 64
"""Tokens a block where the document does not say (docs/trace_replay_tester.md)."""
NOT_A_SESSION = "no session with requests"
HASH_BLOCK_MISMATCH = "hash_block_mismatch"
ASSUMED_START = "assumed_start"
END_UNKNOWN = "end_unknown"
OVERLAP = "overlap"
STAMP_STEP_S = 1.0
"""Stamps are whole seconds: a call this much before the end of the one before it may still have waited for it."""
START_SEED = 64
"""Of the process that spreads sessions: fixed, so that every file finds the same process."""


@dataclass(frozen=True)
class Session:
    """What all calls of one session share; `salt` makes its block ids its own, `start_us` counts us UTC."""

    position: int
    session_id: str
    start_us: int
    model: str | None
    block_tokens: int | None
    salt: int | None
    flags: tuple[str, ...]


@dataclass
class Agent:
    """What is known of an agent after its last call: enough to say what the next one waited for."""

    turns: int = 0
    has_asked_tools: bool = False
    end_s: float | None = None


def recognise(head: Head) -> str | None:
    """Why `head` looks like a session: a document of requests with t, in, out and a block size."""
    for record in head.records:
        requests = record.get("requests")
        if isinstance(requests, list) and requests and {"block_size", "hash_id_scope"} & record.keys():
            first = requests[0]
            if isinstance(first, dict) and first.keys() >= {"t", "type"}:
                return "a session whose requests have t, in, out and block ids"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per call of each session, sub-agents with their agent_id; markers of sub-agents are ignored."""
    out = Outcome()
    for line, position in zip(batch.lines, batch.positions, strict=True):
        document = read_document(line)
        if document is None:
            damage = decode(Batch("", [line], [position])).rejects
            out.rejects.append(damage[0] if damage else Reject(position, NOT_A_SESSION))
            continue
        number = batch.carry.setdefault("ordinal", 0)
        batch.carry["ordinal"] = number + 1
        _read(document, _session(document, line, position, number, source), out)
    return Parsed(frame(out.rows), out.rejects, out.ignored)


def _session(document: Document, line: bytes, position: int, number: int, source: Source) -> Session:
    flags = [ASSUMED_START]
    start_us = origin_us(source, flags) + start_offset_us(source.session_rate_per_s, number)
    models = document.models if isinstance(document.models, list) else []
    session_id = text(document.id) or "weka-" + hashlib.sha256(line).hexdigest()[:16]
    try:
        block = source.block_tokens or small_count(document.block_size, flags) or BLOCK_TOKENS
    except ValueError:
        block = BLOCK_TOKENS
    is_local = document.hash_id_scope != "global"
    salt = int.from_bytes(hashlib.sha256(f"weka {session_id}".encode()).digest()[:8]) if is_local else None
    model = text(models[0]) if len(models) == 1 else None
    return Session(position, session_id, start_us, model, block, salt, tuple(flags))


def start_offset_us(rate_per_s: float | None, number: int) -> int:
    """Microseconds from the origin to the start of session `number` (from 0): point `number` of a Poisson process."""
    if not rate_per_s:
        return 0
    gaps = np.random.default_rng(START_SEED).exponential(1 / rate_per_s, size=number + 1)
    return round(float(gaps.sum()) * 1_000_000)


def _read(document: Document, session: Session, out: Outcome) -> None:
    """Add the rows of one session to `out`."""
    calls = list(calls_of(document.requests, session.position, out))
    agents: dict[str | None, Agent] = {}
    for call in sorted(calls, key=lambda call: call.start_s):
        agent = agents.setdefault(call.agent_id, Agent())
        try:
            out.rows.append(_row(call, agent, session))
        except ValueError as error:
            out.rejects.append(Reject(session.position, str(error)))
            agent.has_asked_tools, agent.end_s = False, None  # the next call's think time runs from this one


def _row(call: Call, agent: Agent, session: Session) -> dict[str, Any]:
    value, flags = call.record.value, [*session.flags, *call.record.flags, *call.flags]
    arrived_us = in_range(session.start_us + round(call.start_s * 1_000_000))
    prompt, output = count(value.get("in"), flags), count(value.get("out"), flags)
    api_s, stop = seconds(value.get("api_time"), "s", flags), text(value.get("stop"))
    ttft_s, think_s = seconds(value.get("ttft"), "s", flags), seconds(value.get("think_time"), "s", flags)
    results = _kinds(value.get("input_types"), "tool_result")
    ids = _ids(value.get("hash_ids"), prompt, session, flags)
    answered = _kinds(value.get("output_types"), "tool_use") or 0
    is_ended = stop is not None or bool(value.get("output_types"))
    asked = max(answered, int(stop in TOOL_REASONS))
    is_tool_wait = agent.has_asked_tools and agent.end_s is not None and results != 0
    if agent.end_s is not None and call.start_s < agent.end_s - STAMP_STEP_S:
        flags.append(OVERLAP)
    if api_s is None:
        flags.append(END_UNKNOWN)
    agent.turns += 1
    agent.has_asked_tools, agent.end_s = asked > 0, None if api_s is None else call.start_s + api_s
    return {
        "source_position": session.position,
        "request_id": ":".join(filter(None, (session.session_id, call.agent_id, str(agent.turns)))),
        "session_id": session.session_id,
        "agent_id": call.agent_id,
        "turn": agent.turns,
        "arrived_at": arrived_us,
        "model": text(value.get("model")) or session.model,
        "status": finish_status(stop, flags),
        "finish_reason": stop,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "ttft_s": ttft_s,
        "e2e_s": api_s,
        "tool_calls": asked if is_ended else None,
        "tool_results": results,
        "logged_tool_wait_s": think_s if is_tool_wait else None,
        "prefix_block_tokens": None if ids is None else session.block_tokens,
        "prefix_block_ids": ids,
        "flags": flags,
    }


def _kinds(value: Any, kind: str) -> int | None:
    """How often `kind` stands in a list of kinds; None where no list was logged."""
    return value.count(kind) if isinstance(value, list) else None


def _ids(ids: Any, prompt_tokens: int | None, session: Session, flags: list[str]) -> pl.Series | None:
    """Ids of the prompt's whole blocks, made the session's own; None where they do not fit its length."""
    if ids is None:
        return None
    if not session.block_tokens or prompt_tokens is None or len(ids) != prompt_tokens // session.block_tokens:
        flags.append(HASH_BLOCK_MISMATCH)
        return None
    return pl.Series(ids if session.salt is None else ids + np.uint64(session.salt), dtype=pl.UInt64)
