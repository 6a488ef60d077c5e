"""OpenTelemetry traces as OTLP JSON lines: spans of model calls by clients, frameworks and engines.

Source: log_formats.md §2. Which spans are requests is said by the span itself where it can be (its operation or kind)
and by its place in the trace (_calls.py). Spans of one trace may lie in several lines: a window of the last 50,000
spans of a file part is kept (_traces.py). What lies further apart, in another part or file, is decided by the span's
own words alone; there only a span that carries a sum of tokens without any word of what it is would count as a request.
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
    from collections.abc import Mapping

    from transforms.batches import Batch
    from transforms.fleet import Source
    from transforms.sources._nodes import Node

FORMAT = "otel"
UNIT = "line"
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
    """One row per model call; wrappers and repeats of a call are duplicates, other spans are ignored."""
    window = batch.carry.setdefault("window", Window())
    clock = clock_of(source, batch.carry, "ns")
    nodes: list[Node] = []
    rejects: list[Reject] = []
    empty = 0
    for line, position in zip(batch.lines, batch.positions, strict=True):
        before = len(nodes) + len(rejects)
        try:
            for number, span in enumerate(spans_of(line, wanted)):
                if isinstance(span, str):
                    rejects.append(Reject(position, span))
                    continue
                try:
                    nodes.append(node_of(span, f"@{position}.{number}", position, clock, source))
                except ValueError as error:
                    rejects.append(Reject(position, str(error)))
        except ValueError as error:
            rejects.append(Reject(position, str(error)))
        empty += len(nodes) + len(rejects) == before
    found = window.absorb(nodes)
    rows = settle_usage(frame(found.rows), source)
    return Parsed(rows, rejects, found.ignored + empty, found.duplicates)
