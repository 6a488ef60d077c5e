"""Measured vLLM runs (LLMServingSim's `requests.jsonl`): arrival on the epoch, the engine's stamps on another clock.

Source: log_formats.md §11. The engine's stamps are exact to each other; `arrival_time` is up to 0.2 s off from row to
row. So a request arrives at `queued_ts`, brought to the epoch by the smallest difference of the two in the file.
Request ids (`bench-0`) are used again by every run: the row's id is theirs and the arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.batches import Parsed, Reject
from transforms.fields.clock import in_range
from transforms.fields.decode import Record, decode
from transforms.fields.numbers import amount, count
from transforms.fields.words import text
from transforms.finish import frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch, Head
    from transforms.fleet import Source

FORMAT = "vllm-measured"
UNIT = "file"
DEFAULTS: Mapping[str, Any] = {}
KEYS = ("request_id", "input_toks", "output_toks", "arrival_time", "queued_ts", "scheduled_ts", "first_token_ts",
        "last_token_ts")  # fmt: skip
STAMPS = KEYS[3:]


@dataclass(frozen=True)
class Measured:
    """One record with its stamps in seconds: `arrival_time` on the epoch, the others on the engine's clock."""

    record: Record
    flags: list[str]
    stamps_s: Mapping[str, float | None]


def recognise(head: Head) -> str | None:
    """Why `head` looks like a measured run: lines with vLLM's own stamps and input_toks, output_toks."""
    if any(record.keys() >= {"input_toks", "output_toks", "arrival_time", "queued_ts"} for record in head.records):
        return "lines with input_toks, output_toks, arrival_time, queued_ts"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per request of the run."""
    del source
    decoded = decode(batch, KEYS)
    rejects = list(decoded.rejects)
    measured: list[Measured] = []
    for record in decoded.records:
        flags = list(record.flags)
        try:
            stamps = {name: amount(record.value.get(name), flags) for name in STAMPS}
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        measured.append(Measured(record, flags, stamps))
    epoch_s = _epoch_s(measured)
    rows: list[dict[str, Any]] = []
    for one in measured:
        try:
            rows.append(_row(one, epoch_s))
        except ValueError as error:
            rejects.append(Reject(one.record.position, str(error)))
    return Parsed(frame(rows), rejects)


def _epoch_s(measured: Sequence[Measured]) -> float | None:
    """Seconds from the engine's clock to the epoch: the least delay between arrival and queue; None where none is."""
    pairs = [(one.stamps_s["arrival_time"], one.stamps_s["queued_ts"]) for one in measured]
    return min(
        (arrival - queued for arrival, queued in pairs if arrival is not None and queued is not None), default=None
    )


def _row(one: Measured, epoch_s: float | None) -> dict[str, Any]:
    line, flags, at = one.record.value, one.flags, one.stamps_s
    queued = at["queued_ts"]
    arrived_s = at["arrival_time"] if queued is None or epoch_s is None else queued + epoch_s
    arrived_us = None if arrived_s is None else in_range(arrived_s * 1_000_000)
    name = text(line.get("request_id"))
    return {
        "source_position": one.record.position,
        "request_id": None if name is None else f"{name}@{arrived_us}",
        "arrived_at": arrived_us,
        "model": text(line.get("model")),
        "prompt_tokens": count(line.get("input_toks"), flags),
        "output_tokens": count(line.get("output_toks"), flags),
        "queue_s": _since(queued, at["scheduled_ts"]),
        "ttft_s": _since(queued, at["first_token_ts"]),
        "e2e_s": _since(queued, at["last_token_ts"]),
        "flags": flags,
    }


def _since(queued_s: float | None, stamp_s: float | None) -> float | None:
    return None if queued_s is None or stamp_s is None else stamp_s - queued_s
