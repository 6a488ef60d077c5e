"""Langfuse exports: observations as CSV, JSON or JSON lines, in camelCase or snake_case, and whole traces.

Source: log_formats.md §3. Observations of type GENERATION and EMBEDDING are requests; a record without a type is taken
for one. Usage buckets are disjoint: `cached_tokens = "inside"` and `reasoning_tokens = "inside"` say otherwise. A
re-exported observation replaces the earlier one by its `updatedAt`. Latencies are computed from start and end. The last
50,000 observations of a file are held open, so that tools, agents and nested generations find each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from transforms.batches import Head, Parsed, Reject
from transforms.fields.clock import clock_of
from transforms.fields.decode import decode
from transforms.fields.usage import settle_usage
from transforms.finish import frame
from transforms.sources._langfuse_observation import node_of
from transforms.sources._langfuse_usage import value_of
from transforms.sources._traces import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from transforms.batches import Batch
    from transforms.fleet import Source
    from transforms.sources._nodes import Node
    from transforms.sources._traces import Given

FORMAT = "langfuse"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {
    "timezone": "UTC",
    "cached_tokens": "outside",
    "reasoning_tokens": "outside",
    "zero_usage": "missing",
}
TYPES = frozenset((
    "SPAN", "EVENT", "GENERATION", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL",
))  # fmt: skip


def recognise(head: Head) -> str | None:
    """Why `head` looks like a Langfuse export: observations with one of its types, a start and a trace."""
    for record in head.records:
        for observation, _ in _observations(record):
            kind, has_start = value_of(observation, "type"), value_of(observation, "startTime") is not None
            if isinstance(kind, str) and kind in TYPES and has_start and value_of(observation, "traceId") is not None:
                return "observations with type, traceId, startTime"
    columns = set(head.columns)
    for wanted in (("type", "traceId", "startTime", "level"), ("type", "trace_id", "start_time", "level")):
        if columns.issuperset(wanted):
            return "columns " + ", ".join(wanted)
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per generation or embedding of the traces that made room; repeats are duplicates, the rest is ignored."""
    window = batch.carry.setdefault("window", Window())
    clock = clock_of(source, batch.carry)
    decoded = decode(batch, ("id", "startTime", "start_time", "endTime", "end_time"))
    nodes: list[Node] = []
    rejects = list(decoded.rejects)
    empty = 0
    for record in decoded.records:
        before = len(nodes) + len(rejects)
        for number, (observation, trace) in enumerate(_observations(record.value)):
            try:
                nodes.append(node_of(observation, trace, (record, f"@{record.position}.{number}"), clock, source))
            except ValueError as error:
                rejects.append(Reject(record.position, str(error)))
        empty += len(nodes) + len(rejects) == before
    given = window.absorb(nodes)
    return Parsed(_rows(given, source), rejects, given.ignored + empty, given.duplicates)


def rest(carry: dict[str, Any], source: Source) -> Parsed:
    """The rows of the traces that were open when the file ended."""
    given = carry.get("window", Window()).rest()
    return Parsed(_rows(given, source), (), given.ignored, given.duplicates)


def _rows(given: Given, source: Source) -> pl.DataFrame:
    return settle_usage(frame(given.rows), replace(source, cached_tokens=None, reasoning_tokens=None))


def _observations(record: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The observations a record holds, each with its trace: itself, those of a trace, or a page of the API."""
    page = record.get("data")
    held = record.get("observations", page if isinstance(page, list) and "meta" in record else None)
    if not isinstance(held, list):
        yield record, {}
        return
    trace = record.get("trace", record)
    for observation in held:
        if isinstance(observation, dict):
            yield observation, trace if isinstance(trace, dict) else {}
