"""Text Generation Inference's router log, as JSON lines (--json-output) or text: one `Success` line a request.

Source: log_formats.md §5 (router/src/server.rs). The line is written when the answer is complete: the request arrived
`total_time` earlier. Durations are Rust Debug texts (`1.23s`, `51.2ms`, `213µs`). The log has no token counts: the only
length in it is the caller's own limit. Failed requests are lines of level ERROR inside a request's span.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.fields.clock import clock_of, in_range
from transforms.fields.decode import NOT_JSON, Record, at, decode
from transforms.fields.numbers import PER_SECOND, count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import failure_status, text
from transforms.finish import frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from transforms.fields.clock import Clock
    from transforms.fleet import Source

FORMAT = "tgi"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {}

TARGET = "text_generation_router"
SPANS = ("generate", "generate_stream", "chat_completions", "completions", "compat_generate", "vertex_compatibility",
         "sagemaker_compatibility")  # fmt: skip
"""Spans of requests (the instrumented handlers of router/src/server.rs)."""
SUCCESS = "Success"
REFUSALS = ("Input validation error", "Model is overloaded", "validation error")
ARRIVAL_FROM_RESPONSE = "arrival_from_response"
BAD_DURATION = "not a duration"

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|µs|μs|us|ms|s)")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(
    r"(?P<timestamp>\d{4}-\d\d-\d\dT\S+)\s+(?P<level>[A-Z]+)\s+(?P<spans>.*)"
    r"\b(?P<target>text_generation_router\S*?): (?:\S+\.rs:\d+: )?(?P<message>.*)"
)
TIMES = ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")
PAIR = re.compile(rf'\b({"|".join(TIMES)})="([^"]*)"')
SPAN = re.compile(rf"\b({'|'.join(SPANS)})\{{")
LIMIT = re.compile(r"\bmax_new_tokens: Some\((\d+)\)")


def recognise(head: Head) -> str | None:
    """Why `head` looks like the router's log: its target in JSON or text lines."""
    if any(str(record.get("target")).startswith(TARGET) for record in head.records):
        return f"lines with target {TARGET}"
    if any(LINE.fullmatch(ANSI.sub("", line)) for line in head.text if not line.startswith("{")):
        return f"text lines of {TARGET}"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request that ended; lines that end none are ignored."""
    clock = clock_of(source, batch.carry)
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    ignored = 0
    for position, record in _records(batch):
        if record is None:
            rejects.append(Reject(position, NOT_JSON))
            continue
        try:
            row = _row(record, clock)
        except ValueError as error:
            rejects.append(Reject(position, str(error)))
            continue
        ignored += row is None
        rows += [] if row is None else [row]
    return Parsed(frame(rows), rejects, ignored)


def _records(batch: Batch) -> Iterator[tuple[int, Record | None]]:
    """Each line as a record with the fields of the JSON output; None for a line that should be JSON and is not."""
    for line, position in zip(batch.lines, batch.positions, strict=True):
        if line.startswith(b"{"):
            yield position, next(iter(decode(Batch("", [line], [position])).records), None)
        elif SUCCESS.encode() in line or b"ERROR" in line:
            yield position, Record(position, _fields(ANSI.sub("", line.decode("utf-8", errors="replace"))))
        else:
            yield position, Record(position, {})


def _fields(line: str) -> dict[str, Any]:
    """The fields of a text line; none where it is not one of the router's (a traceback, the launcher's own words)."""
    match = LINE.fullmatch(line.strip())
    if match is None:
        return {}
    spans = match["spans"]
    names, limits, pairs = SPAN.findall(spans), LIMIT.findall(spans), PAIR.findall(spans)
    span = {"name": names[-1] if names else None, "limit": limits[0] if limits else None, **dict(pairs)}
    return {**match.groupdict(), "spans": [span]}


def _row(record: Record, clock: Clock) -> dict[str, Any] | None:
    """The row of one line; None where it ends no request."""
    value, flags = record.value, list(record.flags)
    message = text(at(value, "fields", "message")) or text(value.get("message")) or ""
    spans = _spans(value)
    is_request = any(span.get("name") in SPANS or "total_time" in span for span in spans)
    is_success = message == SUCCESS
    if not is_request or not (is_success or text(value.get("level")) == "ERROR"):
        return None
    times = {name: duration_s(span[name]) for span in spans for name in TIMES if span.get(name)}
    written_us, total_s = clock.instant_us(value.get("timestamp"), flags), times.get("total_time")
    if total_s is None:
        flags.append(ARRIVAL_FROM_RESPONSE)
    return {
        "source_position": record.position,
        "arrived_at": None if written_us is None else in_range(written_us - (total_s or 0.0) * 1_000_000),
        "status": "ok" if is_success else _failure(message),
        "requested_output_tokens": _limit(spans, flags),
        "queue_s": times.get("queue_time"),
        "e2e_s": total_s,
        "flags": [*flags, USAGE_MISSING],
    }


def _spans(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The spans a line was written in, the innermost last."""
    listed = value.get("spans")
    found = [*(listed if isinstance(listed, list) else ()), value.get("span")]
    return [span for span in found if isinstance(span, dict)]


def duration_s(value: Any) -> float:
    """Seconds of a Rust Debug text such as `1.23s` or `213µs`; ValueError where it is none."""
    match = DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(BAD_DURATION)
    unit = match[2] if match[2] in PER_SECOND else "us"
    return float(match[1]) / PER_SECOND[unit]


def _limit(spans: list[Mapping[str, Any]], flags: list[str]) -> int | None:
    for span in spans:
        found = LIMIT.search(str(span.get("parameters")))
        limit = span.get("limit") or (found[1] if found else None)
        if limit:
            return count(limit, flags)
    return None


def _failure(message: str) -> str:
    return "rejected" if any(word in message for word in REFUSALS) else failure_status(None, message)
