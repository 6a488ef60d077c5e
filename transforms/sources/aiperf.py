"""AIPerf's `profile_export.jsonl`: one line a request, with metadata, metrics (each with its unit) and an error.

Source: log_formats.md §9, aiperf 0.13 (common/models/record_models.py). Names of 2025 (`ttft`, `timestamp_ns`,
`credit_phase`) and later ones stand in the same archives. Counts of the server (`usage_*`) go before those of the
client's tokenizer: they are what was held. Warm-up requests are `synthetic`. A conversation is named by its correlation
id, since a conversation of the input may be used again; sub-agents by their own one inside that of their root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.fields.clock import Clock
from transforms.fields.decode import Record, at, decode
from transforms.fields.numbers import PER_SECOND, count, seconds, small_count
from transforms.fields.usage import USAGE_MISSING
from transforms.fields.words import failure_status, text
from transforms.finish import frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.batches import Batch, Head
    from transforms.fleet import Source

FORMAT = "aiperf"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {}
SYNTHETIC = "synthetic"
STARTS = ("request_start_ns", "timestamp_ns")
PHASES = ("benchmark_phase", "credit_phase")
PROMPTS = ("usage_prompt_tokens", "input_sequence_length", "error_isl")
OUTPUTS = ("usage_completion_tokens", "output_sequence_length")
REASONING = ("usage_reasoning_tokens", "reasoning_token_count")
FIRST_TOKENS = ("time_to_first_token", "ttft")
NOT_A_RECORD = "no request record"


def recognise(head: Head) -> str | None:
    """Why `head` looks like a profile export: records of metadata and metrics with a phase of the benchmark."""
    for record in head.records:
        metadata = record.get("metadata")
        if isinstance(metadata, dict) and "metrics" in record and {*PHASES, *STARTS} & metadata.keys():
            return "lines with metadata (request_start_ns, benchmark_phase) and metrics"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request, cancelled and failed ones too."""
    del source
    decoded = decode(batch, ("metadata", "metrics", "error"))
    rows, rejects = [], list(decoded.rejects)
    for record in decoded.records:
        try:
            rows.append(_row(record))
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
    return Parsed(frame(rows), rejects)


def _row(record: Record) -> dict[str, Any]:
    metadata, metrics, flags = record.value.get("metadata"), record.value.get("metrics"), list(record.flags)
    if not isinstance(metadata, dict):
        raise ValueError(NOT_A_RECORD)  # noqa: TRY004 - one class for every unusable record
    if "warmup" in [metadata.get(name) for name in PHASES]:
        flags.append(SYNTHETIC)
    prompt, output = _count(metrics, PROMPTS, flags), _output(metrics, flags)
    if prompt is None and output is None:
        flags.append(USAGE_MISSING)
    turn, clock = small_count(metadata.get("turn_index"), flags), Clock(unit="ns")
    session_id, agent_id = _session(metadata)
    return {
        "source_position": record.position,
        "request_id": text(metadata.get("x_request_id")),
        "session_id": session_id,
        "agent_id": agent_id,
        "turn": None if turn is None else turn + 1,
        "arrived_at": clock.instant_us(_first(metadata, STARTS), flags),
        "ended_at": clock.instant_us(metadata.get("request_end_ns"), flags),
        "model": text(_first(metadata, ("model", "model_name"))),
        "status": _status(metadata, record.value.get("error")),
        "prompt_tokens": prompt,
        "cached_prompt_tokens": _count(metrics, ("usage_prompt_cache_read_tokens",), flags),
        "cache_write_tokens": _count(metrics, ("usage_prompt_cache_write_tokens",), flags),
        "output_tokens": output,
        "reasoning_tokens": _count(metrics, REASONING, flags),
        "ttft_s": _seconds(metrics, FIRST_TOKENS, flags),
        "e2e_s": _seconds(metrics, ("request_latency",), flags),
        "flags": flags,
    }


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _session(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The conversation a request belongs to, and the sub-agent inside it, if one made it."""
    own = text(_first(metadata, ("x_correlation_id", "conversation_id")))
    root = text(_first(metadata, ("root_correlation_id", "parent_correlation_id")))
    return (own, None) if root in (None, own) else (root, own)


def _status(metadata: Mapping[str, Any], error: Any) -> str:
    if metadata.get("was_cancelled") is True:
        return "aborted"
    return failure_status(at(error, "code"), text(at(error, "type")) or "") if error else "ok"


def _metric(metrics: Any, names: tuple[str, ...]) -> tuple[Any, str | None]:
    """Value and unit of the first of `names` among the metrics; a bare value has no unit."""
    for name in names:
        metric = at(metrics, name)
        value = metric.get("value") if isinstance(metric, dict) else metric
        if value is not None:
            return value, text(at(metric, "unit"))
    return None, None


def _count(metrics: Any, names: tuple[str, ...], flags: list[str]) -> int | None:
    return count(_metric(metrics, names)[0], flags)


def _output(metrics: Any, flags: list[str]) -> int | None:
    """Tokens generated, reasoning among them: as told in one count, else the two parts of it."""
    whole = _count(metrics, OUTPUTS, flags)
    if whole is not None:
        return whole
    answer = _count(metrics, ("output_token_count",), flags)
    return None if answer is None else answer + (_count(metrics, ("reasoning_token_count",), flags) or 0)


def _seconds(metrics: Any, names: tuple[str, ...], flags: list[str]) -> float | None:
    value, unit = _metric(metrics, names)
    if unit is not None and unit not in PER_SECOND:
        raise ValueError("unknown unit of time")
    return seconds(value, unit or "ms", flags)
