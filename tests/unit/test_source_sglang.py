"""SGLang's request log and exported metrics: two lines a request, local stamps, what the server asks itself."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from transforms.batches import Batch, Head, Parsed
from transforms.errors import InputError
from transforms.fleet import Source
from transforms.sources import sglang

TEN_US = 1_772_359_200_000_000  # 2026-03-01T10:00:00Z
META = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 64, "reasoning_tokens": 5,
        "finish_reason": {"type": "stop"}}  # fmt: skip
TIMED = {"request_received_ts": 1_772_359_201.5, "e2e_latency": 2.0, "first_token_latency": 0.3, "queue_time": 0.1}


def received(rid: str, second: int = 0, event: str = "request.received", **asked: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{second:02}.250000", "event": event, "rid": rid, "obj": asked}


def finished(rid: str, second: int = 3, obj: Any = None, **meta: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{second:02}.250000", "event": "request.finished", "rid": rid,
            "obj": obj or {}, "out": {"text": "secret", "meta_info": {"id": rid, **META, **meta}}}  # fmt: skip


def metrics(rid: str, **more: Any) -> dict[str, Any]:
    asked = json.dumps({"rid": rid, "text": "secret", "sampling_params": {"max_new_tokens": 64, "n": 1}})
    return {"request_parameters": asked, "id": rid, **META, **TIMED, **more}


def parse(*records: dict[str, Any], **settings: Any) -> Parsed:
    lines = [json.dumps(record).encode() for record in records]
    carry: dict[str, Any] = {}
    source = Source("sglang", "x", **{"file_order": "arrival"} | settings)
    one = sglang.canonicalise(Batch("x.log", lines, list(range(len(lines))), carry), source)
    rest = sglang.rest(carry, source)
    rows = pl.concat([part for part in (one.rows, rest.rows) if len(part)] or [one.rows], how="diagonal_relaxed")
    assert len(rows) + len(one.rejects) + one.ignored == len(lines)
    return Parsed(rows, one.rejects, one.ignored)


def test_two_lines_are_one_request() -> None:
    asked = {"sampling_params": {"max_new_tokens": 128, "n": 2}, "text": "secret", "conversation_id": "conv"}
    parsed = parse(received("r", 1, **asked), finished("r", 4), timezone="UTC")
    row = parsed.rows.row(0, named=True)
    assert (len(parsed.rows), parsed.ignored) == (1, 1)
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["output_tokens"]) == (100, 64, 20)
    assert (row["reasoning_tokens"], row["requested_output_tokens"], row["choices"]) == (5, 128, 2)
    assert (row["arrived_at"] - TEN_US, row["ended_at"] - row["arrived_at"]) == (1_250_000, 3_000_000)
    assert (row["session_id"], row["status"], row["flags"]) == ("conv", "ok", [])
    assert "secret" not in str(row)


def test_the_engines_own_clock_is_better_than_the_lines_and_needs_no_zone() -> None:
    row = parse(received("r"), finished("r", **TIMED)).rows.row(0, named=True)
    assert row["arrived_at"] == TEN_US + 1_500_000
    assert (row["e2e_s"], row["ttft_s"], row["queue_s"]) == (2.0, 0.3, 0.1)


def test_local_stamps_are_read_in_the_zone_of_the_host() -> None:
    rows = parse(received("r"), finished("r"), timezone="America/New_York").rows
    assert rows["arrived_at"].to_list() == [TEN_US + 250_000 + 5 * 3_600_000_000]


def test_the_hour_that_happens_twice_is_settled_by_the_order_of_lines() -> None:
    def at(rid: str, clock: str) -> list[dict[str, Any]]:
        return [line | {"timestamp": f"2026-10-25T{clock}"} for line in (received(rid), finished(rid, e2e_latency=0.0))]

    rows = parse(*at("a", "02:30:00"), *at("b", "02:59:00"), *at("c", "02:10:00"), timezone="Europe/Berlin").rows
    first, second, third = rows["arrived_at"]
    assert (second - first, third - second) == (29 * 60_000_000, 11 * 60_000_000)


@pytest.mark.parametrize("lines", [[finished("r")], [received("r")], [received("r"), finished("r")]])
def test_without_a_zone_they_are_refused(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="no zone; say which with --timezone"):
        parse(*lines)


def test_a_finished_line_alone_began_one_latency_earlier() -> None:
    rows = parse(finished("a", 9, e2e_latency=4.0), finished("b", 9), timezone="UTC").rows
    assert [us - TEN_US for us in rows["arrived_at"]] == [5_250_000, 9_250_000]
    assert rows["flags"].to_list() == [[], ["arrival_from_response"]]


def test_requests_that_never_finished_are_kept_with_nothing_known() -> None:
    parsed = parse(received("r", sampling_params={"max_new_tokens": 9}), timezone="UTC")
    row = parsed.rows.row(0, named=True)
    assert (row["request_id"], row["requested_output_tokens"], row["precedence"]) == ("r", 9, -1)
    assert row["flags"] == ["unfinished", "usage_missing"]
    assert "prompt_tokens" not in parsed.rows.columns


def test_exported_metrics() -> None:
    row = parse(metrics("m", dp_rank=3)).rows.row(0, named=True)
    assert (row["request_id"], row["replica_id"], row["requested_output_tokens"]) == ("m", "3", 64)
    assert (row["prompt_tokens"], row["output_tokens"], row["arrived_at"]) == (100, 20, TEN_US + 1_500_000)
    assert "secret" not in str(row)


def test_the_servers_own_requests_are_synthetic() -> None:
    rows = parse(
        finished("HEALTH_CHECK_1", **TIMED),
        finished("warm-up-0", **TIMED),
        finished("a", obj={"text": "The capital city of France is"}, **TIMED),
        finished("b", obj={"bootstrap_host": "2.2.2.2"}, **TIMED),
        finished("c", obj={"log_metrics": False}, **TIMED),
        finished("d", obj={"text": "Hello", "log_metrics": True}, **TIMED),
        received("HEALTH_CHECK_2"),
        timezone="UTC",
    ).rows
    assert ["synthetic" in flags for flags in rows["flags"]] == [True, True, True, True, True, False, True]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ({"type": "stop", "matched": 2}, "ok"),
        ({"type": "length", "length": 20}, "length"),
        ({"type": "abort", "message": "Aborted"}, "aborted"),
        ({"type": "abort", "message": "too long", "status_code": 400}, "rejected"),
        ({"type": "abort", "message": "full", "status_code": 503}, "error"),
        ({"type": "abort", "status_code": 499}, "aborted"),
        (None, "ok"),
    ],
)
def test_how_requests_end(reason: Any, status: str) -> None:
    assert parse(finished("r", finish_reason=reason, **TIMED)).rows["status"].to_list() == [status]


def test_embeddings() -> None:
    line = finished("e", obj={"is_cross_encoder_request": False}, **TIMED)
    del line["out"]["meta_info"]["completion_tokens"]
    row = parse(line).rows.row(0, named=True)
    assert (row["operation"], row["prompt_tokens"], row["output_tokens"]) == ("embedding", 100, 0)


def test_the_body_of_an_openai_request_names_the_model() -> None:
    parsed = parse(
        received("r", event="request.received.openai", model="llama", max_tokens=5),
        received("r", sampling_params={"max_new_tokens": 5}),
        finished("r", **TIMED),
        timezone="UTC",
    )
    assert parsed.rows.select("model", "requested_output_tokens").rows() == [("llama", 5)]
    assert parsed.ignored == 2


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"event": "weights.updated"}, "no request event"),
        ({"rid": "a"}, "no request event"),
        (finished("r", prompt_tokens=True), "not a number"),
        (finished("r", request_received_ts="soon"), "not a time"),
        (finished("r", e2e_latency=1e308), "time out of range"),
        (finished("r", obj={"sampling_params": {"n": 2**40}}), "number too large"),
        ({"event": "request.received", "rid": "r"}, "no arrival time"),
    ],
)
def test_what_is_no_request_is_rejected(record: dict[str, Any], reason: str) -> None:
    parsed = parse(record, metrics("m"), timezone="UTC")
    assert [reject.reason for reject in parsed.rejects] == [reason]
    assert parsed.rows["request_id"].to_list() == ["m"]


@pytest.mark.parametrize("odd", [[], {}, "x", 7, True, None, [[]], ["..."]])
@pytest.mark.parametrize("name", ["obj", "out", "rid", "event", "request_parameters", "finish_reason"])
def test_fields_of_any_kind_are_survived(name: str, odd: Any) -> None:
    for record in (received("r"), finished("r"), metrics("m")):
        parse(record | {name: odd}, timezone="UTC")


def test_both_kinds_of_file_are_recognised() -> None:
    for record in (received("r"), finished("r"), metrics("m")):
        assert sglang.recognise(Head("x.log", [record]))
    assert sglang.recognise(Head("x.log", [{"event": "request.finished"}])) is None
