"""LiteLLM's spend log (JSON lines, `/spend/logs` array, psql CSV): one row per attempt of a call.

Source: log_formats.md §1a. Zero tokens are unknown tokens unless `zero_usage = "zero"`; stamps without a zone are UTC
(PR 8190); `cache_hit` means the gateway's own cache; `session_id` falls back to a trace id that may be one per request,
so a session that only it proves carries the flag `session_unproven` and is one from its second row on.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

import polars as pl

from transforms.batches import Head, Parsed, Reject
from transforms.fields.clock import clock_of
from transforms.fields.columns import instants
from transforms.fields.kinds import operation_of
from transforms.fields.outcome import outcome
from transforms.fields.usage import USAGE_MISSING, settle_usage
from transforms.fields.words import REFUSED, failure_status, finish_status
from transforms.flags import flagged
from transforms.plausible import AGGREGATE
from transforms.sources._litellm_columns import columns_of
from transforms.sources._litellm_row import LENIENT_IF, SHAPE, lenient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transforms.batches import Batch
    from transforms.fleet import Source

__all__ = ["DEFAULTS", "FORMAT", "LENIENT_IF", "SHAPE", "UNIT", "attempts", "canonicalise", "recognise"]

FORMAT = "litellm"
UNIT = "line"
DEFAULTS: Mapping[str, Any] = {"timezone": "UTC", "zero_usage": "missing"}

PASSED_ON = "pass_through_endpoint"
SUFFIX = r"(_cache_hit\d+(?:\.\d+)?|_batch_cost|_guardrail\w*|_video\w*)$"
SESSION_UNPROVEN = "session_unproven"
SYNTHETIC = "synthetic"
HEALTH = ("health-check", "health_check")
STAMPS = {"arrived_at": "startTime", "ended_at": "endTime", "first_token_at": "completionStartTime"}
SAID = ("status", "named_status")
WELL = frozenset(("ok", "length"))
UNKNOWN = "?"
"""Stands for a status that is no word we know: such a row is rejected."""
REFUSED_PROMPT = "ContextWindowExceededError"
"""The backend refused the prompt for its length: it never held KV (planner.md §2)."""


def recognise(head: Head) -> str | None:
    """Why `head` looks like a spend log: rows with startTime, endTime, call_type and the spend of an api_key."""
    wanted = {"request_id", "startTime", "endTime", "call_type"}
    if any(wanted <= record.keys() and "trace_id" not in record and "id" not in record for record in head.records):
        return "rows with request_id, call_type, startTime, endTime"
    return "columns request_id, call_type, startTime, endTime" if wanted <= set(head.columns) else None


def canonicalise(batch: Batch, source: Source) -> Parsed:
    """One row per attempt; rows of MCP tools are no requests and are ignored."""
    rows, rejects = lenient(batch)
    if batch.typed is not None:
        plain = batch.typed.with_columns(flags=pl.lit([], dtype=pl.List(pl.String))).select(*rows.columns)
        rows = plain if rows.is_empty() else pl.concat([plain, rows]).sort("source_position", maintain_order=True)
    return attempts(rows, rejects, batch.carry, source)


def attempts(rows: pl.DataFrame, rejects: Sequence[Reject], carry: dict[str, Any], source: Source) -> Parsed:
    """The attempts that `rows` (of SHAPE, with `source_position` and `flags`) tell of, and `rejects` with theirs."""
    frame = columns_of(rows)
    requests = frame.filter(pl.col("mcp_namespaced_tool_name").is_null())
    timed, bad_times = _with_times(requests, carry, source)
    return Parsed(_settled(_named(timed), source), [*rejects, *bad_times], len(frame) - len(requests))


def _with_times(frame: pl.DataFrame, carry: dict[str, Any], source: Source) -> tuple[pl.DataFrame, list[Reject]]:
    """`frame` with its instants; rows whose start, end or first token is no time are rejected."""
    reasons: list[pl.Series] = []
    for name, logged in STAMPS.items():
        column = instants(frame[logged], clock_of(source, carry.setdefault(logged, {})), is_json=False)
        frame = frame.with_columns(column.values.cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias(name))
        if column.reasons is not None:
            reasons.append(column.reasons)
        for word, where in column.flags:
            frame = flagged(frame, where, word)
    if not reasons:
        return frame, []
    reason = pl.select(pl.coalesce(reasons)).to_series()
    bad = frame.filter(reason.is_not_null())["source_position"]
    return frame.filter(reason.is_null()), list(starmap(Reject, zip(bad, reason.drop_nulls(), strict=True)))


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with ids, names and words in our own: whose call, of which model, of which kind, and how it ended."""
    suffix = frame["request_id"].str.extract(SUFFIX)
    bare = pl.col("request_id").str.strip_suffix(suffix.fill_null(""))
    call = pl.col("litellm_call_id")
    has_call = call.is_not_null()
    number = pl.when(has_call).then(pl.col("attempted_retries") + 1)
    is_hit = suffix.str.starts_with("_cache_hit") | frame["cache_hit"].str.to_lowercase().is_in(["true", "1", "hit"])
    prefix = pl.concat_str(pl.col("custom_llm_provider"), pl.lit("/"))
    frame = frame.with_columns(
        request_id=pl.coalesce(call, pl.when(bare != "").then(bare), "request_id"),
        record_id=pl.when(has_call | suffix.is_not_null()).then("request_id"),
        attempt=number.cast(pl.Int32, strict=False),
        session_id=pl.coalesce("named_session_id", "session_id"),
        is_unproven=pl.col("named_session_id").is_null() & pl.col("session_id").is_not_null(),
        agent_id=pl.coalesce("agent_id", "named_agent_id"),
        model=pl.coalesce("model_group", pl.col("model").str.strip_prefix(prefix.fill_null("/")), "litellm_model_name"),
        tenant=pl.coalesce("team_id", "organization_id", "end_user", "user", "api_key"),
        replica_id="model_id",
        served_by=pl.when(is_hit.fill_null(value=False)).then(pl.lit("gateway_cache")).otherwise(pl.lit("backend")),
        operation=_operation(frame, suffix == "_batch_cost"),
        is_synthetic=_is_synthetic(frame),
    )
    return _with_status(frame)


def _operation(frame: pl.DataFrame, is_batch_cost: pl.Series) -> pl.Expr:
    known = frame["call_type"].unique().drop_nulls().to_list()
    words = {name: operation_of(name) for name in known}
    named = (
        pl.col("call_type").replace_strict(words, default="chat", return_dtype=pl.String) if words else pl.lit("chat")
    )
    counted = pl.col("prompt_tokens").fill_null(0) + pl.col("output_tokens").fill_null(0) > 0
    is_chat = (pl.col("call_type") == PASSED_ON) & counted
    return pl.when(is_batch_cost).then(pl.lit("batch")).when(is_chat).then(pl.lit("chat")).otherwise(named)


def _is_synthetic(frame: pl.DataFrame) -> pl.Expr:
    """Whether the gateway itself made the call to see whether a backend is alive."""
    marks = ("user", "team_id", "end_user", "api_key", "call_origin", "tags")
    return pl.any_horizontal(
        pl.col(mark).is_in([v for v in frame[mark].unique().drop_nulls() if any(word in v for word in HEALTH)])
        for mark in marks
    ).fill_null(value=False)


def _with_status(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the status: of failures by code and class, of answers by their finish reason."""
    said = _said(frame)
    failed = frame.select(~said.is_in(list(WELL)) | pl.col("exception_type").is_not_null()).to_series()
    odd: dict[str, list[str]] = {}
    reasons = frame["finish_reason"].unique().drop_nulls().to_list()
    words = {reason: finish_status(reason, odd.setdefault(reason, [])) for reason in reasons}
    ended = (
        pl.col("finish_reason").replace_strict(words, default="ok", return_dtype=pl.String) if words else pl.lit("ok")
    )
    errors = frame.select(
        said, pl.coalesce("status_code", "error_code"), pl.coalesce("exception_type", "error_class").fill_null("")
    ).filter(failed)
    failures = pl.Series(list(starmap(_failure, errors.iter_rows())), dtype=pl.String)
    scattered = pl.Series([None], dtype=pl.String).new_from_index(0, len(frame)).scatter(failed.arg_true(), failures)
    frame = frame.with_columns(status=pl.coalesce(scattered, ended))
    refused = [reason for reason, flags in odd.items() if flags]
    is_refused = frame["finish_reason"].is_in(refused) & ~failed
    return flagged(frame, is_refused, REFUSED) if refused and is_refused.any() else frame


def _said(frame: pl.DataFrame) -> pl.Series:
    """What each row says of its end, the worse of its two words; one that is not known stays, to be rejected."""
    words = {word: _meant(word) for name in SAID for word in frame[name].unique().drop_nulls()}
    if set(words.values()) <= WELL:
        return pl.Series("said", ["ok"]).new_from_index(0, len(frame))
    told = [pl.col(name).replace_strict(words, default=None, return_dtype=pl.String) for name in SAID]
    bad = [pl.when(~word.is_in(list(WELL))).then(word) for word in told]
    return frame.select(said=pl.coalesce(*bad, pl.lit("ok"))).to_series()


def _meant(word: str) -> str:
    try:
        return outcome(word, "") or "ok"
    except ValueError:
        return UNKNOWN


def _failure(said: str, code: str | None, words: str) -> str:
    if said == UNKNOWN or words == REFUSED_PROMPT:
        return UNKNOWN if said == UNKNOWN else "rejected"
    found = failure_status(code, words)
    return said if found == "error" and said not in WELL else found


def _settled(frame: pl.DataFrame, source: Source) -> pl.DataFrame:
    """`frame` with what follows from several of its columns: unknown tokens and first tokens, flags."""
    first = pl.col("first_token_at")
    is_stand_in = (first == pl.col("ended_at")) & (pl.col("output_tokens").fill_null(0) != 1)
    is_failed = ~pl.col("status").is_in(["ok", "length"]) & (pl.col("output_tokens").fill_null(0) == 0)
    frame = frame.with_columns(first_token_at=pl.when(~(is_stand_in | is_failed).fill_null(value=False)).then(first))
    counted = frame["prompt_tokens"].fill_null(0) + frame["output_tokens"].fill_null(0) > 0
    flags = (
        (AGGREGATE, (frame["operation"] == "batch") & counted),
        (SYNTHETIC, frame["is_synthetic"]),
        (SESSION_UNPROVEN, frame["is_unproven"]),
        (USAGE_MISSING, frame["prompt_tokens"].is_null() & frame["output_tokens"].is_null()),
    )
    for word, where in flags:
        if where.any():
            frame = flagged(frame, where, word)
    return settle_usage(frame, source)
