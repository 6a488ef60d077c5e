"""One observation of Langfuse as a node of its trace, and the columns it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields import genai
from transforms.fields.decode import at, inner
from transforms.fields.numbers import amount, small_count
from transforms.fields.words import TOOL_REASONS, failure_status, finish_status, finish_word, text
from transforms.plausible import NO_ARRIVAL
from transforms.sources._langfuse_usage import Buckets, buckets_of, value_of
from transforms.sources._nodes import AGENT, OTHER, REQUEST, TOOL, Node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.fields.clock import Clock
    from transforms.fields.decode import Record
    from transforms.fleet import Source
    from transforms.sources._nodes import Row

ROLES = {"GENERATION": REQUEST, "EMBEDDING": REQUEST, "TOOL": TOOL, "AGENT": AGENT, "": REQUEST}
LATENCY_UNIT = "latency_unit_ms"
"""The declared latency is in milliseconds, as in raw events; exports have seconds (langfuse#13146)."""
LATENCY_DISAGREES = "latency_disagrees"
NO_OBSERVATIONS = "a trace without its observations"
MS_PER_S = 1_000
LATENCY_SLACK_S, LATENCY_SLACK_RATIO = 0.05, 0.02
"""Declared latencies are rounded and taken at another place than the stamps."""
MAX_WORD_CHARACTERS = 64
LIMITS = ("max_tokens", "maxTokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
REASONS = ("finish_reason", "finishReason", "stop_reason")


def node_of(
    observation: Mapping[str, Any],
    trace: Mapping[str, Any],
    place: tuple[Record, str],
    clock: Clock,
    source: Source,
) -> Node:
    """The observation as a node; ValueError with a fixed reason where a request has no start or an unusable number."""
    record, own_place = place
    flags = list(record.flags)
    kind = str(value_of(observation, "type") or "").upper()
    role = ROLES.get(kind, OTHER)
    trace_id = text(value_of(observation, "traceId")) or text(trace.get("id"))
    own_id = text(value_of(observation, "id"))
    start_us, end_us, updated_us = _stamps(observation, role, clock, flags)
    buckets = buckets_of(observation, flags) if role == REQUEST else Buckets()
    node = Node(
        trace=trace_id or own_id or own_place,
        span=own_id or own_place,
        parent=text(value_of(observation, "parentObservationId")),
        role=role,
        start_us=start_us,
        end_us=end_us,
        has_usage=buckets.is_counted,
        is_anonymous=own_id is None,
        call=own_id,
        rank=updated_us // 1_000,
        session=text(value_of(observation, "sessionId")) or text(value_of(trace, "sessionId")),
        tenant=text(value_of(observation, "userId")) or text(value_of(trace, "userId")),
        agent=text(value_of(observation, "name")) if role == AGENT else None,
        fallback_session=trace_id,
    )
    if role == REQUEST:
        node.row = {"source_position": record.position, "flags": flags, **buckets.columns(source, flags)}
        node.row |= _times(observation, node, clock, flags) | _outcome(observation, flags) | _asked(observation)
        node.row |= {"operation": "embedding" if kind == "EMBEDDING" else "chat", "model": _model(observation)}
    return node


def _stamps(observation: Mapping[str, Any], role: str, clock: Clock, flags: list[str]) -> tuple[int, int | None, int]:
    """Start, end and last update in us; zeros and None for what is no request and has no usable times."""
    try:
        start_us = clock.instant_us(value_of(observation, "startTime"), flags)
        end_us = clock.instant_us(value_of(observation, "endTime"), flags)
    except ValueError:
        if role == REQUEST:
            raise
        start_us = end_us = None
    if start_us is None and role == REQUEST:
        is_trace = value_of(observation, "type") is None and value_of(observation, "timestamp") is not None
        raise ValueError(NO_OBSERVATIONS if is_trace else NO_ARRIVAL)
    return start_us or 0, end_us if start_us else None, _lenient_us(clock, value_of(observation, "updatedAt")) or 0


def _lenient_us(clock: Clock, value: Any) -> int | None:
    try:
        return clock.instant_us(value, [])
    except ValueError:
        return None


def _times(observation: Mapping[str, Any], node: Node, clock: Clock, flags: list[str]) -> Row:
    """Instants of the call, with flags where the declared latency is in ms or disagrees with start and end."""
    row: Row = {"arrived_at": node.start_us, "ended_at": node.end_us}
    took_s = None if node.end_us is None else (node.end_us - node.start_us) / 1_000_000
    unit_s = _declared_unit_s(value_of(observation, "latency"), took_s)
    if unit_s == 1 / MS_PER_S:
        flags.append(LATENCY_UNIT)
    elif unit_s == 0:
        flags.append(LATENCY_DISAGREES)
    first_us = clock.instant_us(value_of(observation, "completionStartTime"), flags)
    told = _lenient_amount(value_of(observation, "timeToFirstToken"))
    if first_us is not None and not (first_us == node.end_us and (node.row["output_tokens"] or 0) != 1):
        row["first_token_at"] = first_us
    elif first_us is None and unit_s and told:
        row["ttft_s"] = told * unit_s
    return row


def _declared_unit_s(latency: Any, took_s: float | None) -> float | None:
    """What one of `latency` is in seconds, by the time the call took: 1, 1/1000, 0 for neither; None if unknown."""
    declared = _lenient_amount(latency)
    if not declared or not took_s or took_s < 0:
        return None
    for unit_s in (1.0, 1 / MS_PER_S):
        if abs(declared * unit_s - took_s) <= max(LATENCY_SLACK_S, LATENCY_SLACK_RATIO * took_s):
            return unit_s
    return 0.0


def _lenient_amount(value: Any) -> float | None:
    try:
        return amount(value, [])
    except ValueError:
        return None


def _outcome(observation: Mapping[str, Any], flags: list[str]) -> Row:
    """Status, finish reason and the number of tools the answer asks for; of a status message only its kind of error."""
    output = inner(value_of(observation, "output"))
    word = _finish_reason(observation, output)
    status = finish_status(word and word.replace("-", "_"), flags)
    if str(value_of(observation, "level")).upper() == "ERROR":
        status = failure_status(None, str(value_of(observation, "statusMessage") or ""))
    asked = _named_calls(observation)
    if asked is None:
        asked = calls_in(output)
    if word is not None and word.lower().replace("-", "_") in TOOL_REASONS:
        asked = max(asked or 0, 1)
    return {"status": status, "finish_reason": word, "tool_calls": 0 if asked is None and word is not None else asked}


def _finish_reason(observation: Mapping[str, Any], output: Any) -> str | None:
    """The finish reason, where instrumentation left it: attributes, metadata, parameters or the answer itself."""
    metadata = inner(value_of(observation, "metadata"))
    parameters = inner(value_of(observation, "modelParameters"))
    attributes = inner(at(metadata, "attributes"))
    attributes = attributes if isinstance(attributes, dict) else {}
    said = genai.told({name: held for name, held in attributes.items() if genai.wanted(name)})
    found = inner(genai.first(said, "finish"))
    for place in (metadata, parameters, *_answers(output)):
        for name in REASONS:
            found = found or at(place, name)
    word = finish_word(found)
    return None if word is None or len(word) > MAX_WORD_CHARACTERS else word.rpartition(".")[2] or None


def _answers(output: Any) -> list[Any]:
    """The objects of an answer that may say how it ended: itself, its first message, choice or candidate."""
    lists = [output, *(at(output, name) for name in ("choices", "candidates", "generations"))]
    return [output, *(held[0] for held in lists if isinstance(held, list) and held)]


def _named_calls(observation: Mapping[str, Any]) -> int | None:
    """Tool calls the export lists; None where it lists none, which it also does for large traces."""
    for name in ("toolCalls", "toolCallNames"):
        listed = inner(value_of(observation, name))
        if isinstance(listed, list) and listed:
            return len(listed)
    return None


def calls_in(output: Any) -> int | None:
    """Tool calls in an answer as OpenAI, Anthropic, Gemini or the GenAI conventions shape it; None if unreadable."""
    if not isinstance(output, dict | list):
        return None
    asked = 0
    for answer in [*_answers(output), *(at(held, "message") for held in _answers(output))]:
        calls = at(answer, "tool_calls")
        asked = max(asked, len(calls) if isinstance(calls, list) else 0)
        for parts in (at(answer, "content"), at(answer, "parts"), at(answer, "output"), at(answer, "content", "parts")):
            if isinstance(parts, list):
                asked = max(asked, sum(_is_call(part) for part in parts))
    return asked


def _is_call(part: Any) -> bool:
    return at(part, "type") in ("tool_use", "tool_call", "function_call") or isinstance(at(part, "functionCall"), dict)


def _asked(observation: Mapping[str, Any]) -> Row:
    """The caller's own limit of the output, and the number of choices it asked for."""
    parameters = inner(value_of(observation, "modelParameters"))
    return {"requested_output_tokens": _first_count(parameters, LIMITS), "choices": _first_count(parameters, ("n",))}


def _first_count(parameters: Any, names: Sequence[str]) -> int | None:
    for name in names:
        try:
            if number := small_count(at(parameters, name), []):
                return number
        except ValueError:
            continue
    return None


def _model(observation: Mapping[str, Any]) -> str | None:
    name = text(value_of(observation, "model")) or text(value_of(observation, "providedModelName"))
    return name and genai.RESOURCE_PATH.sub("", name)
