"""Spans and OTLP lines for tests, written as exporters write them, and the rows that stay of what they gave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from transforms.batches import Batch, Parsed
from transforms.finish import finish
from transforms.fleet import Source
from transforms.identity import RESOLVE_COLUMNS, resolve
from transforms.sources import otel
from transforms.sources._traces import WINDOW_NODES, Window

TRACE = "5b8efff798038103d269b633813fc60c"
START_NS = 1_772_359_200_000_000_000
SOURCE = Source("otel", "x", zero_usage="missing")


def value_of(value: Any) -> dict[str, Any]:
    """An OTLP AnyValue."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).endswith(("Value", "_value")):
        return value
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [value_of(item) for item in value]}}
    return {"stringValue": value}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value_of(value)} for key, value in attributes.items()]


def span(
    span_id: str,
    parent: str | None = None,
    start_s: float = 0.0,
    end_s: float = 1.0,
    *,
    trace: str = TRACE,
    name: str = "span",
    error: bool = False,
    more: dict[str, Any] | None = None,
    **attributes: Any,
) -> dict[str, Any]:
    """One span; `a__b` in an attribute's name stands for `a.b`."""
    out = {
        "traceId": trace,
        "spanId": span_id.rjust(16, "0"),
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(START_NS + round(start_s * 1e9)),
        "endTimeUnixNano": str(START_NS + round(end_s * 1e9)),
        "attributes": pairs({key.replace("__", "."): value for key, value in attributes.items()}),
        "status": {"code": 2} if error else {},
    }
    if parent is not None:
        out["parentSpanId"] = parent.rjust(16, "0")
    return out | (more or {})


def chat(span_id: str, parent: str | None = None, start_s: float = 0.0, end_s: float = 1.0, **more: Any) -> Any:
    """A chat span with 100 tokens in and 10 out unless told otherwise."""
    usage = {"gen_ai__usage__input_tokens": 100, "gen_ai__usage__output_tokens": 10}
    return span(span_id, parent, start_s, end_s, **{"gen_ai__operation__name": "chat", **usage, **more})


def tool(span_id: str, parent: str | None = None, start_s: float = 0.0, end_s: float = 1.0, **more: Any) -> Any:
    return span(span_id, parent, start_s, end_s, **{"gen_ai__operation__name": "execute_tool", **more})


def agent(span_id: str, parent: str | None = None, start_s: float = 0.0, end_s: float = 9.0, **more: Any) -> Any:
    usage = {"gen_ai__usage__input_tokens": 999, "gen_ai__usage__output_tokens": 99}
    return span(span_id, parent, start_s, end_s, **{"gen_ai__operation__name": "invoke_agent", **usage, **more})


def line(*spans: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    """One ExportTraceServiceRequest that carries these spans."""
    scope = {"scope": {"name": "test"}, "spans": list(spans)}
    held = {"resource": {"attributes": pairs(resource or {})}, "scopeSpans": [scope]}
    return json.dumps({"resourceSpans": [held]}).encode()


def parse(*lines: bytes, source: Source = SOURCE, carry: dict[str, Any] | None = None) -> Parsed:
    """What otel makes of lines, each at its number as position; of all of a file unless `carry` goes on."""
    held: dict[str, Any] = {} if carry is None else carry
    parsed = otel.canonicalise(Batch("x.jsonl", lines, list(range(len(lines))), held), source)
    return parsed if carry is not None else with_rest(otel, parsed, held, source)


def with_rest(module: Any, parsed: Parsed, carry: dict[str, Any], source: Source) -> Parsed:
    """`parsed` with what was still open when the file ended."""
    rest = module.rest(carry, source)
    rows = pl.concat([frame for frame in (parsed.rows, rest.rows) if len(frame)] or [pl.DataFrame()], how="diagonal")
    return Parsed(rows, parsed.rejects, parsed.ignored + rest.ignored, parsed.duplicates + rest.duplicates)


def rows_of(*spans: dict[str, Any], source: Source = SOURCE) -> list[dict[str, Any]]:
    """The finished rows of spans on one line, in order of arrival."""
    parsed = parse(line(*spans), source=source)
    assert len(parsed.rows) + parsed.duplicates + len(parsed.rejects) + parsed.ignored == len(spans)
    return finish(parsed.rows, "otel", "x").sort("arrived_at", "request_id").to_dicts()


def kept(frames: Iterable[pl.DataFrame], form: str = "otel") -> pl.DataFrame:
    """The rows that stay of those that batches gave one after the other: as the committer decides."""
    finished = [finish(frame, form, "x") for frame in frames if len(frame)]
    rows = pl.concat(finished).with_columns(origin=pl.lit(0, dtype=pl.Int32)).with_row_index("row")
    decisions = resolve(rows.select(*RESOLVE_COLUMNS, "origin", "row"))
    dropped = decisions.filter(~pl.col("keep"))["row"]
    return rows.filter(~pl.col("row").is_in(dropped.implode())).sort("arrived_at", "request_id")


def in_batches(
    lines: Sequence[bytes], sizes: Sequence[int], source: Source = SOURCE, limit: int = WINDOW_NODES
) -> tuple[list[pl.DataFrame], int]:
    """The frames that `lines` give in batches of these sizes, and how many spans were counted in all."""
    carry: dict[str, Any] = {"window": Window(limit)}
    parts, place = [], 0
    for size in [*sizes, len(lines)]:
        batch = lines[place : place + size]
        place += size
        if batch:
            parts.append(parse(*batch, source=source, carry=carry))
    parts.append(otel.rest(carry, source))
    counted = sum(len(p.rows) + p.duplicates + len(p.rejects) + p.ignored for p in parts)
    return [part.rows for part in parts], counted
