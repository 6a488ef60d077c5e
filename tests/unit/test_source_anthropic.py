"""Anthropic bodies: cache beside the prompt, batches, errors, streams merged by message id."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from transforms.batches import Batch, Parsed
from transforms.errors import InputError
from transforms.fleet import Source
from transforms.sources import anthropic

TEN_US = 1_772_359_200_000_000  # 2026-03-01T10:00:00Z


def message(identity: str = "msg_1", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 9}
    return {"id": identity, "type": "message", "model": "c", "role": "assistant", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "secret"}], "usage": usage} | more  # fmt: skip


def start(identity: str, second: int | None = None, **usage: int) -> dict[str, Any]:
    return stamped(second, type="message_start", message={"id": identity, "model": "c", "usage": usage})


def delta(
    second: int | None = None, reason: str | None = "end_turn", identity: str | None = None, **usage: int
) -> dict[str, Any]:
    named = {} if identity is None else {"message_id": identity}
    return stamped(second, type="message_delta", delta={"stop_reason": reason}, usage=usage, **named)


def stamped(second: int | None, **event: Any) -> dict[str, Any]:
    return event if second is None else {"ts": f"2026-03-01T10:00:{second:02}Z", **event}


def parse(*records: dict[str, Any], batches: int = 1, **settings: Any) -> Parsed:
    """All that the format gives for one file of these records, read in so many batches: these and its rest."""
    lines = [json.dumps(record).encode() for record in records]
    carry: dict[str, Any] = {}
    source = Source("anthropic", "x", **{"cached_tokens": "outside"} | settings)
    step = -(-len(lines) // batches)
    parts = [
        anthropic.canonicalise(
            Batch("x.jsonl", lines[n : n + step], list(range(n, min(n + step, len(lines)))), carry), source
        )
        for n in range(0, len(lines), step)
    ]
    parts.append(anthropic.rest(carry, source))
    frames = [part.rows for part in parts if len(part.rows)] or [parts[0].rows]
    rows = pl.concat(frames, how="diagonal_relaxed")
    rejects = [reject for part in parts for reject in part.rejects]
    ignored = sum(part.ignored for part in parts)
    assert len(rows) + len(rejects) + ignored == len(lines)
    return Parsed(rows, rejects, ignored)


def test_a_message() -> None:
    row = parse(message()).rows.row(0, named=True)
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["cache_write_tokens"]) == (125, 100, 20)
    assert (row["output_tokens"], row["status"], row["tool_calls"]) == (9, "ok", 0)
    assert "secret" not in str(row)


def test_cache_that_a_gateway_has_added_already() -> None:
    usage = {"input_tokens": 125, "cache_read_input_tokens": 100, "output_tokens": 9}
    assert parse(message(usage=usage), cached_tokens="inside").rows["prompt_tokens"].to_list() == [125]
    doubted = parse(message(), cached_tokens="inside").rows
    assert doubted["flags"].to_list()[0][:1] == ["cached_tokens_outside"]


def test_cache_writes_by_their_life() -> None:
    usage = {"input_tokens": 5, "output_tokens": 1,
             "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 4}}  # fmt: skip
    row = parse(message(usage=usage)).rows.row(0, named=True)
    assert (row["prompt_tokens"], row["cache_write_tokens"], row["cached_prompt_tokens"]) == (39, 34, None)


@pytest.mark.parametrize(
    ("reason", "status"),
    [("end_turn", "ok"), ("tool_use", "ok"), ("max_tokens", "length"), ("model_context_window_exceeded", "length"),
     ("refusal", "ok"), ("pause_turn", "ok")],
)  # fmt: skip
def test_stop_reasons(reason: str, status: str) -> None:
    assert parse(message(stop_reason=reason)).rows["status"].to_list() == [status]


def test_bodies_have_no_time_but_a_loggers() -> None:
    rows = parse(message("a", ts="2026-03-01T10:00:00Z"), message("b"), message("c", ts="2026-03-01T10:00:05Z")).rows
    assert rows["arrived_at"].to_list() == [TEN_US, TEN_US, TEN_US + 5_000_000]
    assert rows["flags"].to_list() == [["arrival_from_response"], ["assumed_arrival"], ["arrival_from_response"]]
    assert parse(message()).rows["flags"].to_list() == [["assumed_origin", "assumed_arrival"]]


def test_a_stamp_without_a_zone_is_not_guessed() -> None:
    with pytest.raises(InputError, match="no zone"):
        parse(message(ts="2026-03-01T10:00:00"))


def test_results_of_a_batch() -> None:
    def line(name: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"custom_id": name, "result": {"type": kind, **more}}

    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    rows = parse(
        line("a", "succeeded", message=message()),
        line("b", "errored", error=error),
        line("c", "canceled"),
        line("d", "expired"),
        line("e", "errored", error={"type": "error", "error": {"type": "api_error"}}),
    ).rows
    assert rows["status"].to_list() == ["ok", "rejected", "aborted", "timeout", "error"]
    assert rows["operation"].to_list() == ["batch"] * 5
    assert rows["request_id"].to_list() == ["msg_1", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("rate_limit_error", "rejected"),
        ("overloaded_error", "rejected"),
        ("timeout_error", "timeout"),
        ("api_error", "error"),
    ],
)
def test_errors_in_place_of_a_message(kind: str, status: str) -> None:
    row = parse({"type": "error", "request_id": "req_1", "error": {"type": kind}}).rows.row(0, named=True)
    assert (row["status"], row["request_id"], row["prompt_tokens"]) == (status, "req_1", None)


def test_a_stream_in_order_without_ids() -> None:
    block = {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t"}}
    parsed = parse(
        {"type": "ping"},
        start("m", 0, input_tokens=5, cache_read_input_tokens=100, output_tokens=1),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
        block,
        stamped(2, type="content_block_delta", index=1, delta={"type": "input_json_delta"}),
        delta(4, "tool_use", output_tokens=15),
        {"type": "message_stop"},
    )
    row = parsed.rows.row(0, named=True)
    assert (row["prompt_tokens"], row["output_tokens"], row["tool_calls"], row["status"]) == (105, 15, 1, "ok")
    assert (row["arrived_at"], row["ended_at"]) == (TEN_US, TEN_US + 4_000_000)
    assert (len(parsed.rows), parsed.ignored) == (1, 6)


def test_two_streams_at_once_are_kept_apart_by_their_ids() -> None:
    rows = parse(
        start("a", 0, input_tokens=1, output_tokens=1),
        start("b", 1, input_tokens=2, output_tokens=1),
        delta(2, identity="a", output_tokens=10),
        delta(3, identity="b", output_tokens=20),
    ).rows
    assert rows.sort("request_id").select("prompt_tokens", "output_tokens").rows() == [(1, 10), (2, 20)]


def test_streams_run_on_from_batch_to_batch() -> None:
    events = [start("a", 0, input_tokens=1), delta(1, None, output_tokens=3), delta(2, output_tokens=10),
              stamped(2, type="message_stop"), start("b", 3, input_tokens=2), delta(4, output_tokens=20)]  # fmt: skip
    for batches in (1, 2, 3, 6):
        rows = parse(*events, batches=batches).rows.sort("request_id")
        assert rows.select("prompt_tokens", "output_tokens").rows() == [(1, 10), (2, 20)]


def test_a_stream_that_was_cut_off_is_partial() -> None:
    row = parse(start("a", 0, input_tokens=7, output_tokens=1)).rows.row(0, named=True)
    assert row["flags"] == ["output_partial", "arrival_from_response"]
    assert (row["prompt_tokens"], row["output_tokens"], row["ended_at"]) == (7, 1, None)


def test_an_error_inside_a_stream_is_no_refusal() -> None:
    parsed = parse(
        start("a", 0, input_tokens=7), {"type": "error", "error": {"type": "overloaded_error"}}, message("b")
    )
    assert parsed.rows.sort("request_id")["status"].to_list() == ["error", "ok"]


def test_events_under_a_name() -> None:
    parsed = parse(
        {"event": "message_start", "ts": "2026-03-01T10:00:00Z", "data": start("a", input_tokens=3)},
        {"event": "message_delta", "ts": "2026-03-01T10:00:02Z", "data": delta(output_tokens=4)},
    )
    assert parsed.rows.select("prompt_tokens", "output_tokens", "arrived_at").rows() == [(3, 4, TEN_US)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"hello": 1}, "not a response of this API"),
        ({"input_tokens": 4}, "not a response of this API"),
        ({"id": "c", "object": "chat.completion", "usage": {"prompt_tokens": 1}}, "not a response of this API"),
        (delta(output_tokens=4), "stream event of no known message"),
        (message(usage={"input_tokens": True}), "not a number"),
        (start("m", input_tokens=1.5), "not a whole number"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message_is_rejected(record: dict[str, Any], reason: str) -> None:
    parsed = parse(record, message())
    assert [reject.reason for reject in parsed.rejects] == [reason]
    assert len(parsed.rows) == 1


@pytest.mark.parametrize("odd", [[], {}, "x", 7, True, None, [[]], {"a": 1}])
@pytest.mark.parametrize(
    "name", ["type", "usage", "error", "content", "id", "model", "message", "delta", "result", "event", "data", "index"]
)
def test_fields_of_any_kind_are_survived(name: str, odd: Any) -> None:
    for record in (message(), start("m"), delta(identity="m"), {"custom_id": "a", "result": {"message": message()}}):
        parse(record | {name: odd}, start("m", input_tokens=2))
