"""Workloads of Dynamo's simulator that have no wall clock: graphs of requests, and sessions of turns and tools."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from transforms.fields.clock import in_range, origin_us
from transforms.fields.decode import at
from transforms.fields.numbers import count, seconds
from transforms.fields.words import text
from transforms.sources._trace_line import own_ids, session_start_us, sizes

if TYPE_CHECKING:
    from transforms.fields.decode import Record
    from transforms.fleet import Source

ASSUMED_ARRIVAL = "assumed_arrival"
UNEQUAL = "turns of a session differ in number"


def node_row(record: Record, source: Source, carry: dict[str, Any]) -> dict[str, Any]:
    """The row of one request of a graph; it arrives once all it depends on have, with their delays."""
    value, flags = record.value, list(record.flags)
    play, own, name = (text(value.get(key)) for key in ("play_id", "session_id", "request_id"))
    not_before_s = seconds(value.get("not_before_ms"), "ms", flags) or 0.0
    arrived = in_range(origin_us(source, flags) + not_before_s * 1_000_000)
    arrivals, turns = carry.setdefault("arrivals", {}), carry.setdefault("turns", {})
    wait_s = None
    for dependency in _listed(value.get("dependencies")):
        delay_s = seconds(at(dependency, "delay_ms"), "ms", flags) or 0.0
        before = arrivals.get((play, text(at(dependency, "request_id"))))
        if at(dependency, "relation") == "sequence":
            wait_s = delay_s
        if before is not None:
            flags += [] if ASSUMED_ARRIVAL in flags else [ASSUMED_ARRIVAL]
            arrived = max(arrived, in_range(before + delay_s * 1_000_000))
    arrivals[play, name] = arrived
    root = carry.setdefault("play_roots", {}).setdefault(play, own)
    turns[play, own] = turns.get((play, own), 0) + 1
    found = sizes(value, source.block_tokens or carry.get("block_tokens"), flags)
    salt = int.from_bytes(hashlib.sha256(f"dynamo {play}".encode()).digest()[:8])
    found["prefix_block_ids"] = own_ids(found["prefix_block_ids"], salt)
    return {
        "source_position": record.position,
        "request_id": f"{play}:{name}",
        "session_id": play,
        "agent_id": None if own == root else own,
        "turn": turns[play, own],
        "arrived_at": arrived,
        "model": text(value.get("model")),
        **found,
        "logged_tool_wait_s": wait_s,
        "flags": flags,
    }


def session_rows(record: Record, source: Source, carry: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per turn of a session: each prompt holds all before it, each turn waits for the tool of the last one."""
    value, flags = record.value, list(record.flags)
    prompt = count(value.get("input_prompt_length"), flags) or 0
    names = ("assistant_response_length", "tool_call_output_length", "tool_call_latency")
    answers, results, waits = (_listed(value.get(name)) for name in names)
    if not len(answers) == len(results) == len(waits):
        raise ValueError(UNEQUAL)
    session = _session_id(value, carry)
    arrived = session_start_us(source, carry, flags)
    rows: list[dict[str, Any]] = []
    for number in range(len(answers) + 1):
        is_last = number == len(answers)
        wait_s = seconds(waits[number - 1], "s", flags) if number else None
        arrived = in_range(arrived + (wait_s or 0.0) * 1_000_000)
        output = count(value.get("final_assistant_response_length") if is_last else answers[number], flags)
        rows.append(
            {
                "source_position": record.position,
                "request_id": f"{session}:{number + 1}",
                "session_id": session,
                "turn": number + 1,
                "arrived_at": arrived,
                "prompt_tokens": prompt,
                "output_tokens": output,
                "tool_calls": 0 if is_last else 1,
                "tool_results": 1 if number else 0,
                "logged_tool_wait_s": wait_s,
                "flags": [*flags, ASSUMED_ARRIVAL] if number else list(flags),
            }
        )
        prompt += 0 if is_last else (output or 0) + (count(results[number], flags) or 0)
    return rows


def _listed(value: Any) -> list[Any]:
    """The elements of a list; none of anything else."""
    return value if isinstance(value, list) else []


def _session_id(value: dict[str, Any], carry: dict[str, Any]) -> str:
    """A name of the session's content, and which of the file's sessions of that content it is."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
    seen = carry.setdefault("seen", {})
    seen[digest] = seen.get(digest, 0) + 1
    return f"trie-{digest}-{seen[digest]}"
