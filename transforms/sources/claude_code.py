"""Claude Code transcripts: one model call is written over several lines, each repeating its usage.

Source: log_formats.md §8. A record's stamp is the end of its content block, not the start of the call: the call
arrives with the last user or tool-result record before it and ends with its own last record. No time to first token.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import Clock
from transforms.fields.decode import NOT_AN_OBJECT, at, decode
from transforms.fields.numbers import count
from transforms.fields.words import finish_status, text
from transforms.finish import frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from transforms.fields.decode import Record
    from transforms.fleet import Source

FORMAT = "claude-code"
UNIT = "file"
DEFAULTS: Mapping[str, Any] = {}

LOCAL_MODEL = "<synthetic>"
OUTPUT_PARTIAL = "output_partial"
USAGE_MISSING = "usage_missing"
ARRIVAL_FROM_RESPONSE = "arrival_from_response"
NO_STAMP = "no time stamp"
SIDE_RANK = -(2**31) + 1
"""Below the rank of every call of a parent: minus the second its transcript ends, so the earlier session keeps it."""


@dataclass
class Line:
    """What one transcript record says about time, place in the chain and calls; `us` counts us UTC."""

    record: Record
    us: int
    uuid: str | None
    parent: str | None
    is_side: bool
    agent_id: str | None
    session_id: str | None
    call: tuple[str, str | None] | None = None
    flags: list[str] = field(default_factory=list)


def recognise(head: Head) -> str | None:
    """Why `head` looks like a transcript: records with sessionId whose type is user, assistant or summary."""
    for record in head.records:
        is_turn = record.get("type") in ("user", "assistant") and "sessionId" in record
        if is_turn and isinstance(record.get("message"), dict):
            return "records of type user or assistant with a sessionId and a message"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per model call of the transcript; its further lines are duplicates, everything else is ignored."""
    del source  # a transcript has no ambiguity to settle
    decoded = decode(batch)
    rejects = [r for r in decoded.rejects if r.reason != NOT_AN_OBJECT]
    lines, rows = [], []
    for record in decoded.records:
        try:
            line = _line(record, batch.source_file)
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        if line is not None:
            lines.append(line)
    chain: dict[str | None, Line] = {line.uuid: line for line in lines if line.uuid}
    calls = _calls(lines)
    last_us = max((line.us for line in lines), default=0)
    duplicates, named = 0, set()
    for (message, request), call_lines in calls.items():
        try:
            row = _row(call_lines, chain, lines)
        except ValueError as error:
            rejects.extend(Reject(line.record.position, str(error)) for line in call_lines)
            continue
        row["request_id"] = message if message not in named else f"{message}:{request}"
        named.add(message)
        row["precedence"] = SIDE_RANK if call_lines[0].is_side else -(last_us // 1_000_000)
        rows.append(row)
        duplicates += len(call_lines) - 1
    replayed = sum(line.call is not None for line in lines) - sum(map(len, calls.values()))
    counted = len(rows) + duplicates + replayed + len(rejects)
    return Parsed(frame(rows), rejects, len(batch.lines) - counted, duplicates + replayed)


def _line(record: Record, source_file: str) -> Line | None:
    """The record as a Line; None for kinds without a stamp (summaries, snapshots). ValueError where it has no time."""
    value = record.value
    kind, flags = value.get("type"), list(record.flags)
    if kind not in ("user", "assistant"):
        return None
    us = Clock().instant_us(value.get("timestamp"), flags)
    if us is None:
        if kind == "user":
            return None
        raise ValueError(NO_STAMP)
    is_side = value.get("isSidechain") is True
    agent_id = text(value.get("agentId")) or (_agent_of(source_file) if is_side else None)
    names = (text(value.get("uuid")), text(value.get("parentUuid")))
    line = Line(record, us, *names, is_side, agent_id, text(value.get("sessionId")), flags=flags)
    message = value.get("message")
    if kind == "assistant" and isinstance(message, dict) and message.get("model") != LOCAL_MODEL:
        identity = text(message.get("id"))
        line.call = (identity or f"{line.session_id}:{line.uuid}", text(value.get("requestId")))
    return line


def _agent_of(source_file: str) -> str | None:
    stem = source_file.rsplit("/", 1)[-1].split(".", 1)[0]
    return stem.removeprefix("agent-") if stem.startswith("agent-") else None


def _calls(lines: Iterable[Line]) -> dict[tuple[str, str | None], list[Line]]:
    """Lines by call, in order of time; a side chain's replay of a parent's message loses to the parent's own."""
    calls: dict[tuple[str, str | None], list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: (line.us, line.record.position)):
        if line.call is not None:
            calls[line.call].append(line)
    parents = {message for (message, _), found in calls.items() if not all(line.is_side for line in found)}
    return {
        key: found for key, found in calls.items() if key[0] not in parents or not all(line.is_side for line in found)
    }


def _row(call: list[Line], chain: Mapping[str | None, Line], lines: list[Line]) -> dict[str, Any]:
    first, last = call[0], call[-1]
    flags = [flag for line in call for flag in line.flags]
    asked = _prompt_lines(first, chain, lines)
    reasons = [text(at(line.record.value, "message", "stop_reason")) for line in call]
    reason = next((word for word in reversed(reasons) if word), None)
    if reason is None:
        flags.append(OUTPUT_PARTIAL)
    if not asked:
        flags.append(ARRIVAL_FROM_RESPONSE)
    arrived_us = max((line.us for line in asked), default=first.us)
    return {
        "source_position": first.record.position,
        "session_id": first.session_id,
        "agent_id": first.agent_id or (_side_agent(first, chain) if first.is_side else None),
        "arrived_at": arrived_us,
        "ended_at": None if last.us == arrived_us else last.us,  # no answer takes no time: its length is unknown
        "model": text(at(first.record.value, "message", "model")),
        "status": finish_status(reason, flags),
        "finish_reason": reason,
        "tool_calls": len({key for line in call for key in _blocks(line, "tool_use", "id")}),
        "tool_results": len([1 for line in asked for _ in _blocks(line, "tool_result", "tool_use_id")]),
        **_usage(call, flags),
        "flags": sorted(set(flags)),
    }


def _usage(call: list[Line], flags: list[str]) -> dict[str, int | None]:
    """Token counts of the call: of its line with the largest output, since early lines hold a running count."""
    best: dict[str, int | None] | None = None
    for line in call:
        usage = at(line.record.value, "message", "usage")
        if not isinstance(usage, dict):
            continue
        fresh, output = count(usage.get("input_tokens"), flags), count(usage.get("output_tokens"), flags)
        written = count(usage.get("cache_creation_input_tokens"), flags)
        cached = count(usage.get("cache_read_input_tokens"), flags)
        if best is None or (output or 0) >= (best["output_tokens"] or 0):
            prompt = None if fresh is None else fresh + (written or 0) + (cached or 0)
            best = {
                "prompt_tokens": prompt,
                "cached_prompt_tokens": cached,
                "cache_write_tokens": written,
                "output_tokens": output,
            }
    if best is None:
        flags.append(USAGE_MISSING)
    return best or {}


def _prompt_lines(first: Line, chain: Mapping[str | None, Line], lines: list[Line]) -> list[Line]:
    """The user and tool-result records that the call answers: up its chain to the call before, else by time."""
    found, seen = [], set()
    above = chain.get(first.parent)
    while above is not None and above.call is None and above.uuid not in seen:
        seen.add(above.uuid)
        if above.us <= first.us and above.record.value.get("type") == "user":
            found.append(above)
        above = chain.get(above.parent)
    if found or first.parent in chain:
        return found
    earlier = [
        line
        for line in lines
        if line.us <= first.us and line.is_side == first.is_side and line.agent_id == first.agent_id
        and line.call != first.call
    ]  # fmt: skip
    called_us = max((line.us for line in earlier if line.call is not None), default=-1)
    return [line for line in earlier if line.call is None and line.us > called_us]


def _side_agent(line: Line, chain: Mapping[str | None, Line]) -> str | None:
    """A name for the sub-agent of an unnamed side chain: the record its chain starts with."""
    seen, root = set(), line
    while root.parent in chain and root.parent not in seen and chain[root.parent].is_side:
        seen.add(root.parent)
        root = chain[root.parent]
    return root.uuid


def _blocks(line: Line, kind: str, key: str) -> list[Any]:
    content = at(line.record.value, "message", "content")
    if not isinstance(content, list):
        return []
    return [block.get(key) for block in content if isinstance(block, dict) and block.get("type") == kind]
