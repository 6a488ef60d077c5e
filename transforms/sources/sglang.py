"""SGLang's request log (--log-requests --log-requests-format json) and its --export-metrics-to-file lines.

Source: log_formats.md §5 (request_logger.py, request_metrics_exporter.py of 0.5.23). Stamps of the log are the host's
local time without a zone; with --enable-metrics the finished line also has epoch stamps and latencies. A request is
logged when it is received and when it is finished: both lines are one row. Under SGLANG_LOG_REQUEST_EXCEEDED_MS the
finished lines of fast requests are left out: these rows lack tokens and times (`unfinished`), and lengths and latencies
of the rest are those of the slow ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transforms.batches import Batch, Head, Parsed, Reject
from transforms.errors import InputError
from transforms.fields.clock import NO_ZONE, Clock, clock_of, in_range
from transforms.fields.decode import Record, at, decode, inner
from transforms.fields.numbers import count, seconds, small_count
from transforms.fields.usage import USAGE_MISSING, settle_usage
from transforms.fields.words import failure_status, finish_status, finish_word, text
from transforms.finish import frame
from transforms.plausible import NO_ARRIVAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Source

FORMAT = "sglang"
UNIT = "stream"
DEFAULTS: Mapping[str, Any] = {"file_order": "arrival"}
KEYS = ("timestamp", "rid", "prompt_tokens", "completion_tokens")
RECEIVED, FINISHED = "request.received", "request.finished"
NOT_A_REQUEST = "no request event"
ARRIVAL_FROM_RESPONSE = "arrival_from_response"
UNFINISHED = "unfinished"
SYNTHETIC = "synthetic"

HEALTH_CHECK = "HEALTH_CHECK"
"""In the rid of /health_generate's requests (HEALTH_CHECK_RID_PREFIX, srt/constants.py)."""
FAKE_BOOTSTRAP_HOST = "2.2.2.2"
"""Where the warm-up of a disaggregated server says its prefill is (srt/disaggregation/utils.py)."""
WARM_UP_TEXT = "The capital city of France is"
"""What a starting server asks itself (srt/entrypoints/http_server.py)."""
SERVER_LINE = re.compile(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):? ")
"""How lines of the server's logger and of uvicorn begin (log_formats.md §5)."""
REFUSED_FROM, FAILED_FROM = 400, 500


@dataclass(frozen=True)
class Asked:
    """What the line of a received request says of it; `us` counts us UTC, None where its zone is unknown."""

    position: int
    us: int | None
    about: dict[str, Any]
    flags: tuple[str, ...]


@dataclass
class Seen:
    """What lives through a file: requests that were received and have not finished."""

    asked: dict[str, Asked] = field(default_factory=dict)


def recognise(head: Head) -> str | None:
    """Why `head` looks like SGLang's log: request events with a rid, or request_parameters beside token counts."""
    for record in head.records:
        if str(record.get("event")).startswith("request.") and "rid" in record:
            return "events request.received, request.finished with a rid"
        if record.keys() >= {"request_parameters", "prompt_tokens"}:
            return "request_parameters beside meta_info"
    return None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per finished request; its received line is ignored."""
    decoded = decode(batch, KEYS)
    seen: Seen = batch.carry.setdefault("seen", Seen())
    clock = clock_of(source, batch.carry)
    rejects = _without_server_lines(decoded.rejects, batch)
    rows, ignored = [], len(decoded.rejects) - len(rejects)
    for record in decoded.records:
        try:
            kind = _kind(record.value)
            if kind == RECEIVED:
                ignored += _receive(record, seen, clock)
                continue
            rid = _rid(record.value)
            asked = seen.asked.get(rid or "")
            rows.append(_row(record, rid, asked, clock))
        except ValueError as error:
            rejects.append(Reject(record.position, str(error)))
            continue
        if asked is not None:
            del seen.asked[rid or ""]
            ignored += 1
    return Parsed(settle_usage(frame(rows), source), rejects, ignored)


def _without_server_lines(rejects: list[Reject], batch: Batch) -> list[Reject]:
    """`rejects` without the server's own lines, which stand among the requests where the log goes to stdout."""
    if not rejects:
        return []
    lines = dict(zip(batch.positions, batch.lines, strict=True))
    return [reject for reject in rejects if not SERVER_LINE.match(lines[reject.position])]


def rest(carry: dict[str, Any], source: Source) -> Parsed:
    """Rows of the requests that had not finished when the file ended: their tokens and their end are unknown."""
    del source
    seen: Seen = carry.get("seen", Seen())
    rows = []
    for rid, asked in seen.asked.items():
        if asked.us is None:
            raise InputError(NO_ZONE)
        flags = [*asked.flags, UNFINISHED, USAGE_MISSING]
        known = {**asked.about, "flags": flags + [SYNTHETIC] * asked.about["is_synthetic"]}
        known.pop("is_synthetic")
        rows.append({"source_position": asked.position, "request_id": rid, "arrived_at": asked.us, **known})
        rows[-1]["precedence"] = -1
    return Parsed(frame(rows))


def _kind(record: Mapping[str, Any]) -> str:
    event = text(record.get("event")) or ""
    if event == FINISHED or (not event and "request_parameters" in record):
        return FINISHED
    if event.startswith(RECEIVED):
        return RECEIVED
    raise ValueError(NOT_A_REQUEST)


def _rid(record: Mapping[str, Any]) -> str | None:
    return text(record.get("rid")) or text(record.get("id")) or text(at(record, "out", "meta_info", "id"))


def _receive(record: Record, seen: Seen, clock: Clock) -> int:
    """Keep a received request; gives 1 where the line only adds to one that is kept already or names none."""
    rid, flags = _rid(record.value), list(record.flags)
    us = _stamp_us(record.value, clock, flags)
    if rid is None:
        return 1
    if us is None and not record.value.get("timestamp"):
        raise ValueError(NO_ARRIVAL)
    about = _about(record.value.get("obj"), rid, flags)
    before = seen.asked.get(rid)
    if before is None:
        seen.asked[rid] = Asked(record.position, us, about, tuple(flags))
        return 0
    merged = {name: about[name] or value for name, value in before.about.items()}
    seen.asked[rid] = Asked(before.position, before.us, merged, before.flags)
    return 1


def _stamp_us(record: Mapping[str, Any], clock: Clock, flags: list[str]) -> int | None:
    """The line's own stamp; None where it has none, or no zone is given to read it in."""
    try:
        return clock.instant_us(record.get("timestamp"), flags)
    except InputError:
        return None


def _about(asked: Any, rid: str | None, flags: list[str]) -> dict[str, Any]:
    """What the request itself says: limits, session, model, and whether the server asked itself."""
    parameters = at(asked, "sampling_params")
    marks = (
        HEALTH_CHECK in (rid or ""),
        "warmup" in (rid or "").lower().replace("-", "").replace("_", ""),
        at(asked, "log_metrics") is False,
        at(asked, "bootstrap_host") == FAKE_BOOTSTRAP_HOST,
        at(asked, "text") == WARM_UP_TEXT,
    )
    return {
        "session_id": text(at(asked, "session_params", "id")) or text(at(asked, "conversation_id")),
        "model": text(at(asked, "model")),
        "operation": "embedding" if isinstance(asked, dict) and "is_cross_encoder_request" in asked else None,
        "requested_output_tokens": count(at(parameters, "max_new_tokens"), flags),
        "choices": small_count(at(parameters, "n"), flags),
        "is_synthetic": any(marks),
    }


def _row(record: Record, rid: str | None, asked: Asked | None, clock: Clock) -> dict[str, Any]:
    value, flags = record.value, list(record.flags)
    meta = value if "request_parameters" in value else at(value, "out", "meta_info") or {}
    about = _about(inner(value.get("request_parameters")) or value.get("obj"), rid, flags)
    if asked is not None:
        about = {name: found or asked.about[name] for name, found in about.items()}
    finish = at(meta, "finish_reason")
    prompt = count(at(meta, "prompt_tokens"), flags)
    output = count(at(meta, "completion_tokens"), flags)
    is_embedding = about["operation"] == "embedding" or at(value, "out", "embedding") is not None
    if about.pop("is_synthetic"):
        flags.append(SYNTHETIC)
    if prompt is None and output is None:
        flags.append(USAGE_MISSING)
    return {
        **about,
        "source_position": record.position,
        "request_id": rid,
        **_times(value, meta, asked, clock, flags),
        "operation": "embedding" if is_embedding else "chat",
        "replica_id": text(at(meta, "dp_rank")),
        "status": _status(finish, flags),
        "finish_reason": finish_word(finish),
        "prompt_tokens": prompt,
        "cached_prompt_tokens": count(at(meta, "cached_tokens"), flags),
        "output_tokens": 0 if is_embedding and output is None else output,
        "reasoning_tokens": count(at(meta, "reasoning_tokens"), flags),
        "flags": flags,
    }


def _times(
    value: Mapping[str, Any], meta: Any, asked: Asked | None, clock: Clock, flags: list[str]
) -> dict[str, int | float | None]:
    """Arrival, end and durations: of the engine's own clock where logged, else of the lines' stamps."""
    written_us = _stamp_us(value, clock, flags)
    epoch = Clock(unit="s")
    received_us = epoch.instant_us(at(meta, "request_received_ts") or None, flags)
    finished_us = epoch.instant_us(at(meta, "request_finished_ts") or None, flags)
    e2e_s = seconds(at(meta, "e2e_latency"), "s", flags)
    arrived_us = received_us if received_us is not None or asked is None else asked.us
    if arrived_us is None:
        end_us = written_us if finished_us is None else finished_us
        if end_us is None and value.get("timestamp"):
            raise InputError(NO_ZONE)
        if e2e_s is None:
            flags.append(ARRIVAL_FROM_RESPONSE)
        arrived_us = None if end_us is None else in_range(end_us - (e2e_s or 0.0) * 1_000_000)
    is_stamped = asked is not None and written_us is not None and received_us is None
    return {
        "arrived_at": arrived_us,
        "ended_at": finished_us or (written_us if is_stamped else None),
        "queue_s": seconds(at(meta, "queue_time"), "s", flags),
        "ttft_s": seconds(at(meta, "first_token_latency"), "s", flags),
        "e2e_s": e2e_s,
    }


def _status(finish: Any, flags: list[str]) -> str:
    """Status by the finish reason; an abort with an HTTP code is what that code says."""
    code = at(finish, "status_code")
    if isinstance(code, int) and code >= REFUSED_FROM:
        status = failure_status(code)
        return "rejected" if status == "error" and code < FAILED_FROM else status
    return finish_status(finish_word(finish), flags)
