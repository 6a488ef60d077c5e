"""AIPerf's `mooncake_trace` input: Mooncake's keys, float stamps in ms, sessions whose turns wait for each other.

Source: log_formats.md §10 and aiperf 0.13 (dataset/loader/models.py). A line has one of input_length, text_input,
messages or payload; only the first says how long the prompt is. `delay` is ms from the end of the turn before it, which
is not in the trace: such a turn arrives that much after the turn before it (`assumed_arrival`), and the wait is kept.
A session without any stamp starts at the origin, or under `session_rate_per_s` at a point of a Poisson process
(`assumed_start`). Block ids count inside one file: its first record makes them its own.

What input_length counts: the whole prompt (`context_mode` message_array_*, `cached_tokens = "inside"`: the default),
or the new tokens of a turn, what came before standing outside (`context_mode` deltas_*, `cached_tokens = "outside"`:
AIPerf's own way with sessions). A turn below the one before it is flagged `delta_suspected` where nothing says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.fields.clock import in_range, origin_us
from transforms.fields.decode import Record, at, decode
from transforms.fields.numbers import count, seconds
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import text
from transforms.finish import frame
from transforms.sources._trace_line import KEYS, file_salt, offset_clock, own_ids, session_start_us, sizes
from transforms.sources.vllm_timed_trace import recognise as is_timed_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch, Head
    from transforms.fields.clock import Clock
    from transforms.fleet import Source

FORMAT = "aiperf-trace"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"block_tokens": 512, "time_unit": "ms", "cached_tokens": "inside"}
INPUTS = frozenset({"input_length", "text_input", "messages", "payload"})
FIELDS = INPUTS | {
    "type", "output_length", "hash_ids", "timestamp", "delay", "delay_ms", "session_id", "tools", "extra",
    "context_mode", "request_id", "model", "priority", "strict_priority", "policy_class", "output_token_ids",
}  # fmt: skip
"""Fields of aiperf's MooncakeTrace and of dynamo's MooncakeRow."""
TIMED = frozenset({"timestamp", "delay", "delay_ms", "session_id", "output_length"})
"""Of these a line without input_length has one, else it is a chat of some dataset."""
ASSUMED_ARRIVAL = "assumed_arrival"
DELTA_PROMPT = "delta_prompt"
DELTA_SUSPECTED = "delta_suspected"
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@dataclass
class Session:
    """What is known of a session after its last line: enough to place the next turn and to know what it holds."""

    turns: int = 0
    last_us: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None


def recognise(head: Head) -> str | None:
    """Why `head` looks like an AIPerf trace: its fields alone, with a session, a delay or a prompt in words."""
    found = [record for record in head.records if len(INPUTS & record.keys()) == 1]
    if not found or len(found) < len(head.records) or any(record.keys() - FIELDS for record in found):
        return None
    if all("input_length" not in record and not record.keys() & TIMED for record in found):
        return None
    own = sorted({key for record in found for key in record.keys() & {"session_id", "delay", "delay_ms"}})
    is_worded = any("output_length" in record and "input_length" not in record for record in found)
    if own or is_worded or not any("timestamp" in record for record in found):
        return "lines with " + ", ".join([*sorted(INPUTS & found[0].keys()), *own])
    return None


def takes(head: Head) -> bool:
    """Whether it may be an AIPerf trace that cannot be told from Mooncake's: lengths, and none of another's fields."""
    is_plain = all("input_length" in record and not record.keys() - FIELDS for record in head.records)
    return is_plain and bool(head.records) and not is_timed_trace(head)


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per line, the turns of each session numbered in the order they stand in."""
    decoded = decode(batch, (*KEYS, "delay", "session_id"))
    clock = offset_clock(source, batch.carry)
    rows, rejects = [], list(decoded.rejects)
    salt = file_salt(batch)
    for record in decoded.records:
        try:
            row = _row(record, clock, source, batch.carry)
            rows.append({**row, "prefix_block_ids": own_ids(row["prefix_block_ids"], salt)})
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    return Parsed(frame(rows), rejects)


def _row(record: Record, clock: Clock, source: Source, carry: dict[str, Any]) -> dict[str, Any]:
    line, flags = record.value, list(record.flags)
    if not INPUTS & line.keys():
        raise ValueError("no prompt")
    name = text(line.get("session_id"))
    session = Session() if name is None else carry.setdefault("sessions", {}).setdefault(name, Session())
    offset_us = clock.instant_us(line.get("timestamp"), flags)
    delay_s = seconds(line.get("delay", line.get("delay_ms")), "ms", flags)
    lengths = _lengths(line, session, source, flags)
    arrived_us = _arrival_us((offset_us, delay_s), session, source, carry, flags)
    session.turns += 1
    session.last_us = arrived_us
    session.prompt_tokens, session.output_tokens = lengths["prompt_tokens"], lengths["output_tokens"]
    return {
        "source_position": record.position,
        "session_id": name,
        "turn": None if name is None else session.turns,
        "arrived_at": arrived_us,
        "model": text(line.get("model")) or text(at(line, "payload", "model")),
        **lengths,
        "requested_output_tokens": _limit(line.get("payload"), flags),
        "tool_results": _tool_results(line.get("messages")),
        "logged_tool_wait_s": delay_s if session.turns > 1 else None,
        "flags": flags,
    }


def _lengths(line: Mapping[str, Any], session: Session, source: Source, flags: list[str]) -> dict[str, Any]:
    """Prompt, output and blocks; of a turn that counts only what is new in it, the prompt with all that came before."""
    found = sizes(line, source.block_tokens, flags)
    if found["prompt_tokens"] is None and found["output_tokens"] is None:
        flags.append(USAGE_MISSING)
    new, before = found["prompt_tokens"], session.prompt_tokens
    if not session.turns or "input_length" not in line:
        return found
    mode = text(line.get("context_mode"))
    is_delta = mode.startswith("deltas") if mode else source.cached_tokens == "outside"
    if is_delta:
        flags.append(DELTA_PROMPT)
        is_known = None not in (new, before, session.output_tokens)
        whole = (new or 0) + (before or 0) + (session.output_tokens or 0) if is_known else None
        return {**found, "prompt_tokens": whole, "prefix_block_tokens": None, "prefix_block_ids": None}
    if mode is None and new is not None and before is not None and new < before:
        flags.append(DELTA_SUSPECTED)
    return found


def _arrival_us(
    stamps: tuple[int | None, float | None], session: Session, source: Source, carry: dict[str, Any], flags: list[str]
) -> int:
    """Microseconds UTC of the arrival: its stamp, else its delay after the turn before it, else the session's start."""
    offset_us, delay_s = stamps
    if offset_us is None and not session.turns:
        return session_start_us(source, carry, flags)
    origin = origin_us(source, flags)
    if offset_us is not None:
        return origin + offset_us
    flags.append(ASSUMED_ARRIVAL)
    return in_range(session.last_us + (delay_s or 0.0) * 1_000_000)


def _limit(payload: Any, flags: list[str]) -> int | None:
    return next((count(at(payload, name), flags) for name in LIMITS if at(payload, name) is not None), None)


def _tool_results(messages: Any) -> int | None:
    """Results that the prompt adds: those after the last answer among its messages; None where none were given."""
    if not isinstance(messages, list):
        return None
    results = 0
    for message in reversed(messages):
        if at(message, "role") == "assistant":
            break
        results += at(message, "role") == "tool"
    return results
