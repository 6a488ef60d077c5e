"""One OpenTelemetry span as a node of its trace: what kind it is, and the columns its attributes give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields import genai
from transforms.fields.conservation import Usage, doubts
from transforms.fields.decode import at, inner
from transforms.fields.genai import ENGINE_SPAN, first, first_text
from transforms.fields.numbers import count, seconds
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import TOOL_REASONS, failure_status, finish_status, finish_word
from transforms.finish import CLOCK_SKEW, NO_ARRIVAL
from transforms.sources._nodes import AGENT, OTHER, REQUEST, TOOL, Node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fields.clock import Clock
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
    kind = genai.kind_of(span.name, span.attributes)
    role = ROLES.get(kind or "", REQUEST)
    usage = genai.usage_of(span.attributes, flags) if role == REQUEST else Usage()
    if kind is None and not _is_call(span.attributes, usage):
        role = OTHER
    start_us, end_us = _span_times(span, role, clock, flags)
    call = first_text(span.attributes, genai.CALL_ID) if role == REQUEST else None
    is_engine = role == REQUEST and (span.name == ENGINE_SPAN or any(k in span.attributes for k in genai.ENGINE))
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
        call=call,
        id_suffix=f":{span.trace_id[-TRACE_DIGITS:]}" if span.trace_id else "",
        rank=0 if is_engine else 1,
        session=first_text(span.attributes, genai.SESSION),
        tenant=first_text(span.attributes, genai.TENANT) or first_text(span.resource, genai.TENANT),
        agent=first_text(span.attributes, genai.AGENT),
        fallback_session=span.trace_id,
    )
    if role == REQUEST:
        node.row = {"source_position": place[0], "flags": flags, **_tokens(usage, source, flags)}
        node.row |= _times(span, node, clock, flags) | _outcome(span, flags) | _asked(span.attributes)
        node.row |= {
            "operation": kind or "chat",
            "model": _model(span.attributes),
            "replica_id": first_text(span.resource, genai.REPLICA) if is_engine else None,
        }
    return node


def _is_call(attributes: Mapping[str, Any], usage: Usage) -> bool:
    """Whether a span that does not say what it is counts as a model call: it has usage and is no agent's sum."""
    if not (usage.prompt or usage.output):
        return False
    is_agent = any(name in attributes for name in genai.AGENT)
    return not is_agent or any(name in attributes for name in (*genai.CALL_ID, *genai.FINISH))


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


def _times(span: Span, node: Node, clock: Clock, flags: list[str]) -> Row:
    attributes = span.attributes
    e2e_s = seconds(attributes.get(genai.E2E), "s", flags)
    queue_s = seconds(attributes.get(genai.QUEUE), "s", flags)
    ttft_s = seconds(first(attributes, genai.FIRST_TOKEN_S), "s", flags)
    if ttft_s is None:
        ttft_s = seconds(first(attributes, genai.FIRST_TOKEN_MS), "ms", flags)
    if ttft_s is None:
        first_us = _first_token_us(span, clock)
        ttft_s = None if first_us is None else (first_us - node.start_us) / 1_000_000
    took_s = e2e_s if node.end_us is None else (node.end_us - node.start_us) / 1_000_000
    if took_s is not None and max(ttft_s or 0, queue_s or 0) > max(took_s, 0) + LATE_S:
        flags.append(CLOCK_SKEW)
        ttft_s = queue_s = None
    e2e_s = e2e_s if node.end_us is None else None
    return {
        "arrived_at": node.start_us, "ended_at": node.end_us, "e2e_s": e2e_s, "ttft_s": ttft_s, "queue_s": queue_s,
    }  # fmt: skip


def _first_token_us(span: Span, clock: Clock) -> int | None:
    """When the first token came, by Langfuse's attribute (a quoted text in its older SDKs) or by an event."""
    stamps = [event.time for event in span.events if event.name in genai.FIRST_TOKEN_EVENTS]
    told = span.attributes.get(genai.FIRST_CHUNK_AT)
    for group in ([told.strip('"')] if isinstance(told, str) else [], stamps):
        known = [us for us in (_lenient_instant(clock, stamp) for stamp in group) if us]
        if known:
            return min(known)
    return None


def _lenient_instant(clock: Clock, value: Any) -> int | None:
    try:
        return clock.instant_us(value, [])
    except ValueError:
        return None


def _outcome(span: Span, flags: list[str]) -> Row:
    """Status, finish reason and the number of tools the answer asks for."""
    attributes = span.attributes
    word = _finish_reason(span)
    status = finish_status(word and word.replace("-", "_"), flags)
    error = first(attributes, genai.ERROR) or next(
        (first(event.attributes, genai.ERROR) for event in span.events if event.name == "exception"), None
    )
    if span.is_error or attributes.get("error.type"):
        code = first(attributes, genai.HTTP_CODE)
        status = failure_status(code or error, str(error or ""))
    asked = len({name for name in attributes if genai.is_asked_tool(name)}) or _calls_in(attributes)
    if word is not None and word.lower().replace("-", "_") in TOOL_REASONS:
        asked = max(asked, 1)
    return {"status": status, "finish_reason": word, "tool_calls": asked if asked or word is not None else None}


def _finish_reason(span: Span) -> str | None:
    """The finish reason as one word; a longer text is none."""
    value = inner(first(span.attributes, genai.FINISH))
    if value is None:
        value = next((e.attributes["finish_reason"] for e in span.events if "finish_reason" in e.attributes), None)
    if value is None:
        messages = inner(span.attributes.get(genai.OUTPUT_MESSAGES))
        value = at(messages[0], "finish_reason") if isinstance(messages, list) and messages else None
    word = finish_word(value)
    if word is None or len(word) > MAX_WORD_CHARACTERS:
        return None
    return word.rpartition(".")[2] or None  # enums written as FinishReason.STOP


def _calls_in(attributes: Mapping[str, Any]) -> int:
    """Tool calls among the parts of the answer, where the span carries it."""
    calls = inner(attributes.get(genai.VERCEL_CALLS))
    if isinstance(calls, list):
        return len(calls)
    messages = inner(attributes.get(genai.OUTPUT_MESSAGES))
    parts = [at(message, "parts") for message in messages] if isinstance(messages, list) else []
    return sum(at(part, "type") == "tool_call" for held in parts if isinstance(held, list) for part in held)


def _asked(attributes: Mapping[str, Any]) -> Row:
    """What the caller set: its own limit of output tokens, and the number of choices."""
    limit = first(attributes, genai.LIMIT)
    if limit is None:
        parameters = inner(attributes.get(genai.PARAMETERS))
        limit = next((value for key in LIMITS if (value := at(parameters, key)) is not None), None)
    return {"requested_output_tokens": _setting(limit), "choices": _setting(first(attributes, genai.CHOICES))}


def _setting(value: Any) -> int | None:
    """A whole number above zero; what is none says nothing and rejects nothing."""
    try:
        return count(value, []) or None
    except ValueError:
        return None


def _model(attributes: Mapping[str, Any]) -> str | None:
    """The model's name; of a cloud's resource path (projects/…/models/NAME) the last part."""
    name = first_text(attributes, genai.MODEL)
    return name and genai.RESOURCE_PATH.sub("", name)
