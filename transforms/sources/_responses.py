"""What logs of response bodies share, whichever API wrote them: refusals, stamps, records without a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.fields.clock import Clock, origin_us
from transforms.fields.decode import at
from transforms.fields.words import failure_status, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.fleet import Source

NOT_A_RESPONSE = "not a response of this API"
ASSUMED_ARRIVAL = "assumed_arrival"
OUTPUT_PARTIAL = "output_partial"

HTTP_ERROR_FROM = 400
HTTP_CODES = ("status_code", "http_status", "http_status_code", "response_status", "status")
REFUSALS = ("ratelimit", "contextlength", "maximum context length", "quota", "overloaded", "prompt is too long")
"""Words of an error that refused the request before a backend held KV for it; underscores taken out."""


def http_code(*records: Mapping[str, Any]) -> int | None:
    """The HTTP code that a logger wrote beside a body; None where there is none."""
    for record in records:
        for name in HTTP_CODES:
            value = record.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def failure_of(error: Any, code: int | None) -> str | None:
    """Status of a call that an error body or HTTP code says failed; None where neither does."""
    if not error:
        return failure_status(code) if code is not None and code >= HTTP_ERROR_FROM else None
    told = [error] if isinstance(error, str) else [at(error, name) for name in ("type", "code", "message", "error")]
    words = " ".join(filter(None, map(text, told))).lower()
    if any(word in words.replace("_", "") for word in REFUSALS):
        return "rejected"
    return failure_status(code or at(error, "code"), words.replace("_", ""))


def stamp_us(clock: Clock, flags: list[str], names: Sequence[str], *records: Mapping[str, Any]) -> int | None:
    """Microseconds UTC of the first of `names` that any of `records` has; a zero says nothing."""
    for record in records:
        for name in names:
            if record.get(name) not in (None, 0, ""):
                return clock.instant_us(record[name], flags)
    return None


def fill_arrivals(rows: Sequence[dict[str, Any]], carry: dict[str, Any], source: Source) -> None:
    """Give rows without a time that of the record before them (else of the first after), flagged `assumed_arrival`.

    Where no record has one yet, they arrive at the source's origin. `carry` lives from batch to batch.
    """
    last = carry.get("last_us")
    first = next((row["arrived_at"] for row in rows if row["arrived_at"] is not None), None)
    for row in rows:
        if row["arrived_at"] is not None:
            last = row["arrived_at"]
            continue
        near = first if last is None else last
        row["arrived_at"] = origin_us(source, row["flags"]) if near is None else near
        row["flags"].append(ASSUMED_ARRIVAL)
    carry["last_us"] = last
