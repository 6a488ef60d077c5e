"""One OpenTelemetry span as a node of its trace: what kind it is, and the columns its attributes give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields import genai
from transforms.fields.conservation import Usage, doubts
from transforms.fields.decode import at, inner
from transforms.fields.genai import ENGINE_SPAN, first, first_text, told
from transforms.fields.numbers import CLOCK_SKEW, count, seconds
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import TOOL_REASONS, failure_status, finish_status, finish_word
from transforms.plausible import NO_ARRIVAL
from transforms.sources._nodes import AGENT, OTHER, REQUEST, TOOL, Node

if TYPE_CHECKING:
    from transforms.fields.clock import Clock
    from transforms.fields.genai import Told
    from transforms.fields.otlp import Span
    from transforms.fleet import Source
    from transforms.sources._nodes import Row

ROLES = {"tool": TOOL, "agent": AGENT, "other": OTHER}
TRACE_DIGITS = 16
"""The last of a trace id, which make a call's id unique: the random ones, also where 64-bit ids are padded in front."""
MAX_WORD_CHARACTERS = 64
LATE_S = 1.0
"""A first token this long after the end is a wrong unit or clock, not rounding."""
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def node_of(span: Span, place: tuple[int, int], clock: Clock, source: Source) -> Node:
    """The span at `place` (offset of the line, number in it) as a node.

    ValueError with a fixed reason where a request has no start or an unusable number.
    """
    own = "@{}.{}".format(*place)
    flags: list[str] = []
    said = told(span.attributes)
    kind = genai.kind_of(span.name, said)
    role = ROLES.get(kind or "", REQUEST)
    usage = genai.usage_of(said, flags) if role == REQUEST else Usage()
    if kind is None and not _is_call(said, usage):
        role = OTHER
    start_us, end_us = _span_times(span, role, clock, flags)
    is_engine = role == REQUEST and (span.name == ENGINE_SPAN or any(name in said for name in genai.ENGINE))
    resource = told(span.resource) if span.resource else {}
    node = Node(
        trace=span.trace_id or own,
        span=span.span_id or own,
        parent=span.parent_id,
        role=role,
        start_us=start_us,
        end_us=end_us,
        has_usage=bool(usage.prompt or usage.output),
        is_marked=kind is not None,
        is_engine=is_engine,
        is_anonymous=span.span_id is None,
        call=first_text(said, "call") if role == REQUEST else None,
        id_suffix=f":{span.trace_id[-TRACE_DIGITS:]}" if span.trace_id else "",
        rank=0 if is_engine else 1,
        session=first_text(said, "session"),
        tenant=first_text(said, "tenant") or first_text(resource, "tenant"),
        agent=first_text(said, "agent"),
        fallback_session=span.trace_id,
    )
    if role == REQUEST:
        node.row = {"source_position": place[0], "flags": flags, **_tokens(usage, source, flags)}
        node.row |= _times(span, said, node, clock, flags) | _outcome(span, said, flags) | _asked(said)
        node.row |= {
            "operation": kind or "chat",
            "model": _model(said),
            "replica_id": first_text(resource, "replica") if is_engine else None,
        }
    return node


def _is_call(said: Told, usage: Usage) -> bool:
    """Whether a span that does not say what it is counts as a model call: it has usage and is no agent's sum."""
    if not (usage.prompt or usage.output):
        return False
    return "agent" not in said or "call" in said or "finish" in said


def _span_times(span: Span, role: str, clock: Clock, flags: list[str]) -> tuple[int, int | None]:
    """Start and end in us; (0, None) for a span that is no request and has no usable start."""
    try:
        start_us, end_us = _instant(clock, span.start, flags), _instant(clock, span.end, flags)
    except ValueError:
        if role == REQUEST:
            raise
        start_us = None
    if start_us is not None:
        return start_us, end_us
    if role == REQUEST:
        raise ValueError(NO_ARRIVAL)
    return 0, None


def _instant(clock: Clock, value: Any, flags: list[str]) -> int | None:
    """Microseconds UTC; OTLP writes 0 where a time is not set."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return clock.instant_us(value, flags) or None


def _tokens(usage: Usage, source: Source, flags: list[str]) -> Row:
    if usage.is_missing:
        flags.append(USAGE_MISSING)
    flags += doubts(usage, source.cached_tokens or "inside", source.reasoning_tokens or "inside")
    return {
        "prompt_tokens": usage.prompt,
        "cached_prompt_tokens": usage.cached,
        "cache_write_tokens": usage.written,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
    }


def _times(span: Span, said: Told, node: Node, clock: Clock, flags: list[str]) -> Row:
    e2e_s, queue_s = seconds(first(said, "e2e_s"), "s", flags), seconds(first(said, "queue_s"), "s", flags)
    ttft_s = None
    for name, unit in (("engine_ttft_s", "s"), ("first_chunk_s", "s"), ("first_chunk_ms", "ms")):
        ttft_s = seconds(first(said, name), unit, flags) if ttft_s is None else ttft_s
    if ttft_s is None:
        first_us = _first_token_us(span, said, clock)
        ttft_s = None if first_us is None else (first_us - node.start_us) / 1_000_000
    took_s = e2e_s if node.end_us is None else (node.end_us - node.start_us) / 1_000_000
    if took_s is not None and max(ttft_s or 0, queue_s or 0) > max(took_s, 0) + LATE_S:
        flags.append(CLOCK_SKEW)
        ttft_s = queue_s = None
    e2e_s = e2e_s if node.end_us is None else None
    return {
        "arrived_at": node.start_us, "ended_at": node.end_us, "e2e_s": e2e_s, "ttft_s": ttft_s, "queue_s": queue_s,
    }  # fmt: skip


def _first_token_us(span: Span, said: Told, clock: Clock) -> int | None:
    """When the first token came, by Langfuse's attribute (a quoted text in its older SDKs) or by an event."""
    stamps = [event.time for event in span.events if event.name in genai.FIRST_TOKEN_EVENTS]
    stamp = first(said, "first_chunk_at")
    for group in ([stamp.strip('"')] if isinstance(stamp, str) else [], stamps):
        known = [us for us in (_lenient_instant(clock, written) for written in group) if us]
        if known:
            return min(known)
    return None


def _lenient_instant(clock: Clock, value: Any) -> int | None:
    try:
        return clock.instant_us(value, [])
    except ValueError:
        return None


def _outcome(span: Span, said: Told, flags: list[str]) -> Row:
    """Status, finish reason and the number of tools the answer asks for."""
    word = _finish_reason(span, said)
    status = finish_status(word and word.replace("-", "_"), flags)
    if span.is_error or "error" in said:
        error = first(said, "error")
        for event in span.events:
            error = error or first(told(event.attributes), "exception")
        status = failure_status(first(said, "http_code") or error, str(error or ""))
    asked = len(said.get("asked", ())) or _calls_in(said)
    if word is not None and word.lower().replace("-", "_") in TOOL_REASONS:
        asked = max(asked, 1)
    return {"status": status, "finish_reason": word, "tool_calls": asked if asked or word is not None else None}


def _finish_reason(span: Span, said: Told) -> str | None:
    """The finish reason as one word; a longer text is none."""
    value = inner(first(said, "finish"))
    for event in span.events:
        value = first(told(event.attributes), "finish") if value is None else value
    if value is None:
        messages = inner(first(said, "answer"))
        value = at(messages[0], "finish_reason") if isinstance(messages, list) and messages else None
    word = finish_word(value)
    if word is None or len(word) > MAX_WORD_CHARACTERS:
        return None
    return word.rpartition(".")[2] or None  # enums written as FinishReason.STOP


def _calls_in(said: Told) -> int:
    """Tool calls among the parts of the answer, where the span carries it."""
    calls = inner(first(said, "calls"))
    if isinstance(calls, list):
        return len(calls)
    messages = inner(first(said, "answer"))
    parts = [at(message, "parts") for message in messages] if isinstance(messages, list) else []
    return sum(at(part, "type") == "tool_call" for held in parts if isinstance(held, list) for part in held)


def _asked(said: Told) -> Row:
    """What the caller set: its own limit of output tokens, and the number of choices."""
    limit = first(said, "limit")
    if limit is None:
        parameters = inner(first(said, "parameters"))
        limit = next((value for key in LIMITS if (value := at(parameters, key)) is not None), None)
    return {"requested_output_tokens": _setting(limit), "choices": _setting(first(said, "choices"))}


def _setting(value: Any) -> int | None:
    """A whole number above zero; what is none says nothing and rejects nothing."""
    try:
        return count(value, []) or None
    except ValueError:
        return None


def _model(said: Told) -> str | None:
    """The model's name; of a cloud's resource path (projects/…/models/NAME) the last part."""
    name = first_text(said, "model")
    return name and genai.RESOURCE_PATH.sub("", name)
