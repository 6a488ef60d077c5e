"""OpenTelemetry traces as OTLP JSON lines: spans of model calls by clients, frameworks and engines.

Source: log_formats.md §2. Which spans are requests is said by the span itself where it can be (its operation or kind)
and by its place in the trace (_calls.py). Spans of one trace may lie in several lines: the last 50,000 spans of a file
are held open (_traces.py), so memory is bounded and the file is one stream. What lies further apart, or in another
file, is decided by the span's own words alone; there only a span with a sum of tokens and no word of what it is would
count as a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Head, Parsed, Reject
from transforms.fields.clock import clock_of
from transforms.fields.genai import wanted
from transforms.fields.otlp import spans_of
from transforms.fields.usage import settle_usage
from transforms.finish import frame
from transforms.sources._otel_span import node_of
from transforms.sources._traces import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from transforms.batches import Batch
    from transforms.fields.clock import Clock
    from transforms.fields.otlp import Span
    from transforms.fleet import Source
    from transforms.sources._nodes import Node
    from transforms.sources._traces import Given

FORMAT = "otel"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"time_unit": "ns", "zero_usage": "missing"}


def recognise(head: Head) -> str | None:
    """Why `head` looks like OTLP JSON: records with resourceSpans, or bare spans with traceId and startTimeUnixNano."""
    for record in head.records:
        if isinstance(record.get("resourceSpans", record.get("resource_spans")), list):
            return "records with resourceSpans"
        if {"traceId", "spanId", "startTimeUnixNano"} <= record.keys():
            return "spans with traceId, spanId, startTimeUnixNano"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per model call of the traces that made room; its wrappers and repeats are duplicates, others ignored."""
    window = batch.carry.setdefault("window", Window())
    clock = clock_of(source, batch.carry, "ns")
    nodes: list[Node] = []
    rejects: list[Reject] = []
    empty = 0
    for line, position in zip(batch.lines, batch.positions, strict=True):
        before = len(nodes) + len(rejects)
        for found in _found(line, position, clock, source):
            if isinstance(found, Reject):
                rejects.append(found)
            else:
                nodes.append(found)
        empty += len(nodes) + len(rejects) == before
    given = window.absorb(nodes)
    return Parsed(_rows(given, source), rejects, given.ignored + empty, given.duplicates)


def rest(carry: dict[str, Any], source: Source) -> Parsed:
    """The rows of the traces that were open when the file ended."""
    given = carry.get("window", Window()).rest()
    return Parsed(_rows(given, source), (), given.ignored, given.duplicates)


def _rows(given: Given, source: Source) -> pl.DataFrame:
    return settle_usage(frame(given.rows), source)


def _found(line: bytes, position: int, clock: Clock, source: Source) -> Iterator[Node | Reject]:
    """The nodes of one line; a reject in place of a span or of the line that cannot be used."""
    try:
        for number, span in enumerate(spans_of(line, wanted)):
            yield _node(span, (position, number), clock, source)
    except ValueError as error:
        yield Reject(position, str(error))


def _node(span: Span | str, place: tuple[int, int], clock: Clock, source: Source) -> Node | Reject:
    if isinstance(span, str):
        return Reject(place[0], span)
    try:
        return node_of(span, place, clock, source)
    except ValueError as error:
        return Reject(place[0], str(error))
