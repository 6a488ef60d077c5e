"""inference-perf's `per_request_lifecycle_metrics.json`: an array of requests with the client's own measurements.

Source: log_formats.md §9, inference-perf (apis/base.py, reportgen). Stamps are epoch seconds, or seconds of a
performance counter, which count from the file's first request (at the origin). The server's own token counts go before
the client's: they are what was held. Of the request's text only its model and limit are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.fields.clock import in_range, origin_us
from transforms.fields.decode import Record, at, decode, inner
from transforms.fields.numbers import amount, count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import text
from transforms.finish import frame
from transforms.sources._benchmark import told_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch, Head
    from transforms.fleet import Source

FORMAT = "inference-perf"
UNIT = "file"
DEFAULTS: Mapping[str, Any] = {}
EPOCH_FROM_S = 1e9
"""A counter that has run for 31 years does not exist: from September 2001 on, seconds are of the epoch."""
NO_START = "no start of the request"
LIMITS = ("max_completion_tokens", "max_tokens")


def recognise(head: Head) -> str | None:
    """Why `head` looks like a lifecycle report: requests with start_time, end_time, request and info."""
    for record in head.records:
        if record.keys() >= {"start_time", "end_time", "request", "info"} and isinstance(record["info"], dict):
            return "requests with start_time, end_time, request, info"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request of the report."""
    decoded = decode(batch, ("start_time", "end_time"))
    rejects = list(decoded.rejects)
    started: list[tuple[Record, float, list[str]]] = []
    for record in decoded.records:
        flags = list(record.flags)
        try:
            started.append((record, _start_s(record, flags), flags))
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    base_us, first_s, assumed = _base([start_s for _, start_s, _ in started], source)
    rows: list[dict[str, Any]] = []
    for record, start_s, flags in started:
        arrived_us = base_us + round((start_s - first_s) * 1_000_000)
        try:
            rows.append({"arrived_at": arrived_us, **_row(record, start_s, [*assumed, *flags])})
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    return Parsed(frame(rows), rejects)


def _start_s(record: Record, flags: list[str]) -> float:
    start_s = amount(record.value.get("start_time"), flags)
    if start_s is None:
        raise ValueError(NO_START)
    in_range(start_s * 1_000_000)
    return start_s


def _base(starts_s: Sequence[float], source: Source) -> tuple[int, float, list[str]]:
    """Microseconds UTC that stand for a number of seconds on the file's clock, and what is assumed in it."""
    flags: list[str] = []
    first_s = min(starts_s, default=0.0)
    if source.origin is None and first_s >= EPOCH_FROM_S:
        return round(first_s * 1_000_000), first_s, flags
    return origin_us(source, flags), first_s, flags


def _row(record: Record, start_s: float, flags: list[str]) -> dict[str, Any]:
    value, info = record.value, record.value.get("info")
    usage, error = at(info, "response_metrics", "server_usage"), value.get("error")
    request = inner(value.get("request"))
    client_prompt = at(info, "request_metrics", "text", "input_tokens")
    prompt = count(_known(at(usage, "prompt_tokens"), client_prompt, at(info, "input_tokens")), flags)
    client_output = _known(at(info, "response_metrics", "output_tokens"), at(info, "output_tokens"))
    output = count(_known(at(usage, "completion_tokens"), client_output), flags)
    if error and not output:
        output = None  # the default of a response that never came
    if prompt is None and output is None:
        flags.append(USAGE_MISSING)
    end_s = amount(value.get("end_time"), flags)
    return {
        "source_position": record.position,
        "session_id": text(value.get("session_id")),
        "model": text(at(request, "model")) or text(at(info, "lora_adapter")),
        "status": _status(error),
        "prompt_tokens": prompt,
        "cached_prompt_tokens": count(at(usage, "prompt_tokens_details", "cached_tokens"), flags),
        "output_tokens": output,
        "reasoning_tokens": count(at(usage, "completion_tokens_details", "reasoning_tokens"), flags),
        "requested_output_tokens": _limit(request),
        "ttft_s": _first_token_s(info, start_s, flags),
        "e2e_s": None if end_s is None else end_s - start_s,
        "flags": flags,
    }


def _known(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _status(error: Any) -> str:
    if not error:
        return "ok"
    told = [text(at(error, name)) for name in ("error_type", "error_msg")]
    found = [told_failure(words) for words in told if words]
    return next((status for status in found if status != "error"), "error")


def _limit(request: Any) -> int | None:
    try:
        return next((count(at(request, name), []) for name in LIMITS if at(request, name) is not None), None)
    except ValueError:
        return None


def _first_token_s(info: Any, start_s: float, flags: list[str]) -> float | None:
    """Seconds to the first token; None for a response that did not stream."""
    for times in (at(info, "response_metrics", "output_token_times"), at(info, "output_token_times"),
                  at(info, "response_metrics", "chunk_times")):  # fmt: skip
        if isinstance(times, list) and times:
            first_s = amount(times[0], flags)
            return None if first_s is None else first_s - start_s
    return None
