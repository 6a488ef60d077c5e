"""One row from one request of a GuideLLM report, whichever version of the schema it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.fields.clock import Clock
from transforms.fields.decode import at, inner
from transforms.fields.numbers import count, seconds, small_count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import text
from transforms.sources._benchmark import told_failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.fields.decode import Record

OUTPUT_PARTIAL = "output_partial"
SYNTHETIC = "synthetic"
MODALITIES = ("text_tokens", "image_tokens", "video_tokens", "audio_tokens")
LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
STARTS = ("request_start", "resolve_start", "request_start_time", "start_time")
ENDS = ("request_end", "resolve_end", "request_end_time", "end_time")
FIRST_TOKENS = ("first_token_iteration", "first_iteration", "first_token_time")
CLOCK = Clock(unit="s")
NEVER_SENT = (None, -1, -1.0)
"""How the versions write a stamp that was never taken."""


@dataclass(frozen=True)
class Benchmark:
    """What all requests of one benchmark share: where the report says so, its model and its measured span."""

    position: int
    flags: tuple[str, ...]
    model: str | None
    measured_from_us: int | None

    @classmethod
    def of(cls, benchmark: Any, record: Record) -> Benchmark:
        """The benchmark that `benchmark`, of the report `record`, describes."""
        report = record.value
        places = (
            (benchmark, ("config", "backend", "model")), (benchmark, ("benchmarker", "backend", "model")),
            (benchmark, ("worker", "backend_model")), (report, ("config", "backend", "model")),
            (report, ("config", "model")), (report, ("args", "model")),
        )  # fmt: skip
        models = (text(at(value, *path)) for value, path in places)
        start = at(benchmark, "scheduler_metrics", "measure_start_time") or at(benchmark, "start_time")
        try:
            measured_from = CLOCK.instant_us(start, [])
        except ValueError:
            measured_from = None
        return cls(record.position, record.flags, next(filter(None, models), None), measured_from)


def request_row(request: Mapping[str, Any], group: str, benchmark: Benchmark) -> dict[str, Any] | None:
    """The row of one request of `group`; None where it was never sent. ValueError where a value is of no use."""
    flags = list(benchmark.flags)
    info = request.get("info") or request.get("scheduler_info")
    stamps = _stamps(info)
    arrived_us = _instant(request, stamps, STARTS, flags)
    if arrived_us is None:
        return None
    if benchmark.measured_from_us is not None and arrived_us < benchmark.measured_from_us:
        flags.append(SYNTHETIC)
    arguments, turn = _arguments(request), small_count(at(info, "turn_index"), flags)
    session_id = text(at(info, "conversation_id")) or text(at(info, "graph_id"))
    return {
        "source_position": benchmark.position,
        "request_id": text(request.get("request_id")) or text(at(info, "request_id")),
        "session_id": session_id,
        "agent_id": text(at(info, "agent_id")),
        "turn": None if turn is None or session_id is None else turn + 1,
        "arrived_at": arrived_us,
        "ended_at": _instant(request, stamps, ENDS, flags),
        "model": text(at(arguments, "model")) or benchmark.model,
        "status": _status(request, info, group),
        **_tokens(request, group, flags),
        "requested_output_tokens": _limit(arguments),
        "ttft_s": _first_token_s(request, stamps, arrived_us, flags),
        "tool_calls": len(request["tool_calls"]) if isinstance(request.get("tool_calls"), list) else None,
        "flags": flags,
    }


def _stamps(info: Any) -> dict[str, Any]:
    """The stamps of a request, by name, wherever its version puts them."""
    found: dict[str, Any] = {}
    for name in ("scheduler_timings", "request_timings", "timings"):
        held = at(info, name)
        found |= held if isinstance(held, dict) else {}
    return found


def _instant(
    request: Mapping[str, Any], stamps: Mapping[str, Any], names: Sequence[str], flags: list[str]
) -> int | None:
    """Microseconds UTC of the first of `names` that was taken, among `stamps` or on the request itself."""
    taken = [stamps.get(name, request.get(name)) for name in names]
    return next((CLOCK.instant_us(stamp, flags) for stamp in taken if stamp not in NEVER_SENT), None)


def _first_token_s(
    request: Mapping[str, Any], stamps: Mapping[str, Any], arrived_us: int, flags: list[str]
) -> float | None:
    logged = seconds(request.get("time_to_first_token_ms"), "ms", flags)
    if logged:
        return logged
    first = _instant(request, stamps, FIRST_TOKENS, flags)
    return None if first is None else (first - arrived_us) / 1_000_000


def _arguments(request: Mapping[str, Any]) -> Any:
    """The body that was sent, of which the model and the limit are read."""
    arguments = inner(request.get("request_args"))
    body = at(arguments, "body")
    return body if isinstance(body, dict) else arguments


def _limit(arguments: Any) -> int | None:
    try:
        return next((count(at(arguments, name), []) for name in LIMITS if at(arguments, name) is not None), None)
    except ValueError:
        return None


def _status(request: Mapping[str, Any], info: Any, group: str) -> str:
    if group == "successful":
        return "ok"
    if group == "incomplete":
        return "aborted"
    return told_failure(text(at(info, "error")) or text(request.get("error")))


def _tokens(request: Mapping[str, Any], group: str, flags: list[str]) -> dict[str, int | None]:
    prompt = _total(request.get("input_metrics"), request.get("prompt_tokens"), flags)
    output = _total(request.get("output_metrics"), request.get("output_tokens"), flags)
    if group != "successful":
        output = output or None  # a zero is what is written when nothing was counted
        flags += [] if output is None else [OUTPUT_PARTIAL]
    if prompt is None and output is None:
        flags.append(USAGE_MISSING)
    return {
        "prompt_tokens": prompt,
        "cached_prompt_tokens": count(at(request, "input_metrics", "cached_tokens"), flags),
        "output_tokens": output,
        "reasoning_tokens": count(at(request, "output_metrics", "reasoning_tokens"), flags),
    }


def _total(metrics: Any, own: Any, flags: list[str]) -> int | None:
    """Tokens of all modalities, or the request's own count where it has no metrics."""
    known = [found for found in (count(at(metrics, name), flags) for name in MODALITIES) if found is not None]
    return sum(known) if known else count(own, flags)
