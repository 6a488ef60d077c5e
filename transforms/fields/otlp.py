"""Spans of one OTLP JSON record (an ExportTraceServiceRequest): ids, enums and values as writers really write them.

Source: log_formats.md §2a. A span is decoded only as far as it is used: of its attributes those that are asked for, so
that the texts of prompts and answers are passed over as bytes. Records no decoder of typed OTLP takes (other spellings
of the keys, attributes as an object) are decoded leniently.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from transforms.fields.decode import NOT_AN_OBJECT, NOT_JSON, parse_slowly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Wanted = Callable[[str], bool]

NOT_OTLP = "no OTLP trace"
TRACE_BYTES, SPAN_BYTES = 16, 8
OTHER_SIGNALS = {"resourceMetrics", "resourceLogs", "resourceProfiles"}
STATUS_ERROR = 2

_CAMEL = re.compile(r"_([a-z])")
_HEX = re.compile(r"[0-9a-f]+")
_REFUSED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a span; `time` as it is written, in ns since 1970."""

    name: str
    time: Any
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One span; ids in lower-case hex, times as they are written, attributes those asked for, decoded."""

    trace_id: str | None
    span_id: str | None
    parent_id: str | None
    name: str
    kind: str
    start: Any
    end: Any
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: tuple[Event, ...] = field(default=())


class _Attribute(msgspec.Struct):
    key: str
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Event(msgspec.Struct, rename="camel"):
    name: Any = None
    time_unix_nano: Any = None
    attributes: list[_Attribute] | None = None


class _Status(msgspec.Struct):
    code: Any = None


class _Span(msgspec.Struct, rename="camel"):
    name: Any = None
    trace_id: Any = None
    span_id: Any = None
    parent_span_id: Any = None
    kind: Any = None
    start_time_unix_nano: Any = None
    end_time_unix_nano: Any = None
    attributes: list[_Attribute] | None = None
    events: list[_Event] | None = None
    status: _Status | None = None


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] | None = None


class _Scope(msgspec.Struct):
    spans: list[msgspec.Raw] | None = None


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_Scope] | None = None
    instrumentation_library_spans: list[_Scope] | None = None


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_decode_request = msgspec.json.Decoder(_Request).decode
_decode_span = msgspec.json.Decoder(_Span).decode
_decode_value = msgspec.json.Decoder().decode


def spans_of(record: bytes, wanted: Wanted) -> Iterator[Span | str]:
    """The spans of one record, in order, with the attributes whose name `wanted` takes; a reason in place of a bad one.

    ValueError with a fixed reason where it is no JSON object or no OTLP trace; metrics and log records have no span.
    """
    try:
        request = _decode_request(record)
    except _REFUSED:
        yield from _spans_leniently(record, wanted)
        return
    for group in request.resource_spans:
        resource = _attributes((group.resource and group.resource.attributes) or (), wanted)
        for scope in [*(group.scope_spans or ()), *(group.instrumentation_library_spans or ())]:
            for raw in scope.spans or ():
                yield _span(raw, resource, wanted)


def _span(raw: msgspec.Raw, resource: dict[str, Any], wanted: Wanted) -> Span | str:
    try:
        span = _decode_span(raw)
        if span.trace_id is None and span.span_id is None:
            return _span_leniently(raw, resource, wanted)
        attributes = _attributes(span.attributes or (), wanted)
        events = tuple(
            Event(str(event.name or ""), event.time_unix_nano, _attributes(event.attributes or (), wanted))
            for event in span.events or ()
        )
    except _REFUSED:
        return _span_leniently(raw, resource, wanted)
    return Span(
        trace_id=hex_id(span.trace_id, TRACE_BYTES),
        span_id=hex_id(span.span_id, SPAN_BYTES),
        parent_id=hex_id(span.parent_span_id, SPAN_BYTES),
        name=span.name if isinstance(span.name, str) else "",
        kind=span_kind(span.kind),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        is_error=is_error_code(span.status and span.status.code),
        attributes=attributes,
        resource=resource,
        events=events,
    )


def _attributes(pairs: Iterable[_Attribute], wanted: Wanted) -> dict[str, Any]:
    return {pair.key: any_value(_decode_value(pair.value)) for pair in pairs if wanted(pair.key)}


def any_value(value: Any) -> Any:
    """What an OTLP AnyValue holds: text, number, boolean, list or dict; None where it is empty or holds bytes.

    64-bit integers come as texts; a writer that puts the bare value there is taken at its word.
    """
    if not isinstance(value, dict):
        return value
    for key, held in value.items():
        kind = key.replace("_v", "V")
        if kind in ("stringValue", "boolValue", "doubleValue"):
            return held
        if kind == "intValue":
            return _whole(held)
        if kind == "arrayValue":
            return [any_value(item) for item in _values(held)]
        if kind == "kvlistValue":
            return {str(pair.get("key")): any_value(pair.get("value")) for pair in _values(held)}
    return None


def _whole(held: Any) -> Any:
    try:
        return int(held) if isinstance(held, str) else held
    except ValueError:
        return held


def _values(held: Any) -> list[Any]:
    values = held.get("values") if isinstance(held, dict) else held
    return values if isinstance(values, list) else []


def hex_id(value: Any, size_bytes: int) -> str | None:
    """A trace or span id in lower-case hex; None where it is absent or all zeros.

    Protobuf's own JSON mapping, which OTLP excepts ids from, writes them in base64: taken where the length says so.
    """
    if not isinstance(value, str) or not value:
        return None
    text = value.strip().lower()
    if not (len(text) == 2 * size_bytes and _HEX.fullmatch(text)):
        try:
            held = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return text
        text = held.hex() if len(held) == size_bytes else text
    return text if text.strip("0") else None


def span_kind(value: Any) -> str:
    """A span's kind as a lower-case word, from the enum's number or name."""
    names = ("unspecified", "internal", "server", "client", "producer", "consumer")
    if isinstance(value, str):
        word = value.strip().lower().removeprefix("span_kind_")
        if not word.isdigit():
            return word or names[0]
        value = int(word)
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else names[0]


def is_error_code(value: Any) -> bool:
    """Whether a span's status code, the enum's number or name, says error."""
    if isinstance(value, str):
        return value.strip().lower().removeprefix("status_code_") in ("error", str(STATUS_ERROR))
    return bool(value == STATUS_ERROR)


def _span_leniently(raw: msgspec.Raw, resource: dict[str, Any], wanted: Wanted) -> Span | str:
    try:
        return _lenient_span(parse_slowly(bytes(raw))[0], resource, wanted)
    except (ValueError, RecursionError):
        return NOT_JSON


def _spans_leniently(record: bytes, wanted: Wanted) -> Iterator[Span | str]:
    try:
        value = _camel(parse_slowly(record)[0])
    except (ValueError, RecursionError):
        raise ValueError(NOT_JSON) from None
    if not isinstance(value, dict):
        raise ValueError(NOT_AN_OBJECT)  # noqa: TRY004 - one class for every unusable record
    if {"traceId", "spanId"} <= value.keys():
        yield _lenient_span(value, {}, wanted)
        return
    groups = value.get("resourceSpans")
    if not isinstance(groups, list) and not OTHER_SIGNALS & value.keys():
        raise ValueError(NOT_OTLP)
    for group in _objects(groups):
        resource = _lenient_attributes(_camel(group.get("resource") or {}).get("attributes"), wanted)
        scopes = [*_objects(group.get("scopeSpans")), *_objects(group.get("instrumentationLibrarySpans"))]
        for scope in scopes:
            spans = scope.get("spans")
            for span in spans if isinstance(spans, list) else ():
                yield _lenient_span(span, resource, wanted)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [_camel(item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _camel(value: Any) -> Any:
    """An object with its own keys in OTLP's camelCase; other values as they are."""
    if not isinstance(value, dict):
        return value
    return {_CAMEL.sub(lambda m: m[1].upper(), key) if "_" in key else key: held for key, held in value.items()}


def _lenient_span(value: Any, resource: dict[str, Any], wanted: Wanted) -> Span | str:
    if not isinstance(value, dict):
        return NOT_AN_OBJECT
    span = _camel(value)
    status = span.get("status")
    events = tuple(
        Event(str(e.get("name") or ""), e.get("timeUnixNano"), _lenient_attributes(e.get("attributes"), wanted))
        for e in _objects(span.get("events"))
    )
    return Span(
        trace_id=hex_id(span.get("traceId"), TRACE_BYTES),
        span_id=hex_id(span.get("spanId"), SPAN_BYTES),
        parent_id=hex_id(span.get("parentSpanId"), SPAN_BYTES),
        name=span["name"] if isinstance(span.get("name"), str) else "",
        kind=span_kind(span.get("kind")),
        start=span.get("startTimeUnixNano"),
        end=span.get("endTimeUnixNano"),
        is_error=is_error_code(status.get("code") if isinstance(status, dict) else status),
        attributes=_lenient_attributes(span.get("attributes"), wanted),
        resource=resource,
        events=events,
    )


def _lenient_attributes(pairs: Any, wanted: Wanted) -> dict[str, Any]:
    """Attributes from a list of key and value, or from an object of them."""
    if isinstance(pairs, dict):
        return {key: any_value(value) for key, value in pairs.items() if wanted(key)}
    named = [pair for pair in pairs if isinstance(pair, dict)] if isinstance(pairs, list) else []
    return {
        pair["key"]: any_value(pair.get("value"))
        for pair in named
        if isinstance(pair.get("key"), str) and wanted(pair["key"])
    }
