"""Values and rows that no log can mean: unknown with a flag or rejected, the same on every way a row can take."""

from __future__ import annotations

import json

import polars as pl
import pytest
from ingesting import counts, ingested, lake, rejects

from flows.reading.rows import read_rows
from transforms.errors import ConfigError
from transforms.fleet import Source
from transforms.mapping import parse_mapping

START_S = 1_772_359_200
WEEK_S = 7 * 86_400
TIMES = ("queue_s", "ttft_s", "e2e_s", "logged_tool_wait_s")
LIES = [
    # queue, ttft, e2e, logged wait -> what is kept of them, flags
    ((0.1, 0.5, 2.0, 3.0), (0.1, 0.5, 2.0, 3.0), []),
    ((None, None, 1e12, None), (None, None, None, None), ["duration_implausible"]),
    ((0.1, 0.5, WEEK_S + 1, None), (0.1, 0.5, None, None), ["duration_implausible"]),
    ((None, None, WEEK_S, 30 * 86_400), (None, None, WEEK_S, 30 * 86_400), []),
    ((None, None, 1.0, 3e6), (None, None, 1.0, None), ["duration_implausible"]),
    ((None, 3.0, 2.0, None), (None, None, 2.0, None), ["clock_skew"]),
    ((None, 2.0005, 2.0, None), (None, 2.0, 2.0, None), []),
    ((0.7, 0.5, 2.0, None), (None, 0.5, 2.0, None), ["clock_skew"]),
    ((3.0, None, 2.0, None), (None, None, 2.0, None), ["clock_skew"]),
    ((None, None, -0.5, None), (None, None, None, None), ["clock_skew"]),
    ((None, -0.1, 2.0, -3.0), (None, None, 2.0, None), ["clock_skew"]),
    ((-1.0, 0.5, 1e12, None), (None, 0.5, None, None), ["clock_skew", "duration_implausible"]),
]


@pytest.fixture
def read(tmp_path):
    """Read rows written as lines of `kind` in the format; gives the Reading."""

    def read(rows, kind="jsonl", form="kvledger", **settings):
        path = tmp_path / f"rows.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif kind == "csv":
            pl.DataFrame(rows).write_csv(path)
        else:
            pl.DataFrame(rows).write_parquet(path)
        return read_rows(path, Source(form, str(path), **settings))

    return read


def stamped(number, **columns):
    return {"request_id": f"r{number}", "arrived_at": START_S + number, **columns}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_durations_that_cannot_be_are_unknown(read, kind):
    rows = [stamped(n, **dict(zip(TIMES, given, strict=True))) for n, (given, _, _) in enumerate(LIES)]
    found = read(rows, kind).rows
    assert found.select(*TIMES).rows() == [kept for _, kept, _ in LIES]
    assert found["flags"].to_list() == [flags for _, _, flags in LIES]


def spend(number, start, first, end, **more):
    stamps = (f"2026-03-01 10:00:{at:09.6f}" if at is not None else None for at in (start, end, first))
    row = dict(zip(("startTime", "endTime", "completionStartTime"), stamps, strict=True))
    return {
        "request_id": f"r{number}",
        "call_type": "completion",
        "prompt_tokens": 1,
        "completion_tokens": 5,
        **row,
        **more,
    }


def test_spend_logs_have_the_same_rules_on_the_fast_and_the_lenient_way(read):
    plain = [
        spend(0, 1, 2, 3),
        spend(1, 5, 6, 4),
        spend(2, 6, 9, 8),
        spend(3, 8, 9, 10, metadata={"queue_time_seconds": 1e9}),
        spend(4, 9, 9.5, 12, metadata={"queue_time_seconds": -1.0}),
        {**spend(5, 10, None, 10), "endTime": "2027-03-01 10:00:00"},
        spend(6, 11, 12, 13, completion_tokens=200_000_000),
        spend(7, 12, 13, 14, call_type="aretrieve_batch", completion_tokens=200_000_000),
        spend(8, 13, 14, 15, call_type="hum"),
    ]
    odd = [{**row, "spend": "x", "prompt_tokens": "1.0"} for row in plain]
    fast, slow = (read(rows, form="litellm", timezone="UTC") for rows in (plain, odd))
    assert fast.rows.drop("source_position").equals(slow.rows.drop("source_position"))
    assert fast.rows.select("request_id", *TIMES[:3], "operation", "flags").rows() == [
        ("r0", None, 1.0, 2.0, "chat", []),
        ("r1", None, 1.0, None, "chat", ["clock_skew"]),
        ("r2", None, None, 2.0, "chat", ["clock_skew"]),
        ("r3", None, 1.0, 2.0, "chat", ["duration_implausible"]),
        ("r4", None, 0.5, 3.0, "chat", ["clock_skew"]),
        ("r5", None, None, None, "chat", ["duration_implausible"]),
        ("r7", None, 1.0, 2.0, "batch", ["aggregate"]),
        ("r8", None, 1.0, 2.0, "other", ["operation_unknown"]),
    ]
    assert [reject.reason for reject in fast.rejects] == ["implausible token count"]


def test_arrivals_outside_the_age_of_such_logs_are_rejected(read):
    stamps = ["2014-12-31T23:59:59Z", "2015-01-01T00:00:00Z", "2099-12-31T00:00:00Z", "2100-01-01T00:00:00Z",
              "1999-01-01T00:00:00Z", "1970-01-05T00:00:07Z"]  # fmt: skip
    reading = read([{"request_id": stamp[:4], "arrived_at": stamp} for stamp in stamps])
    assert reading.rows.select("request_id", "flags").rows() == [
        ("1970", ["assumed_origin"]),
        ("2015", []),
        ("2099", []),
    ]
    assert [reject.reason for reject in reading.rejects] == ["time out of range"] * 3


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_words_that_are_not_known_are_counted_rejections(read, kind):
    rows = [
        stamped(0, status="client_closed", served_by="HIT", operation="acompletion"),
        stamped(1, status="fine, thanks", served_by=None, operation=None),
        stamped(2, status="503 Service Unavailable", served_by="miss", operation="sing"),
        stamped(3, status=None, served_by="someone", operation="chat"),
        stamped(4, status="true", served_by="backend", operation="/v1/embeddings"),
    ]
    reading = read(rows, kind)
    assert reading.rows.select("status", "served_by", "operation", "flags").rows() == [
        ("aborted", "gateway_cache", "chat", []),
        ("error", "backend", "other", ["operation_unknown"]),
    ]
    assert [reject.reason for reject in reading.rejects] == [
        "status is not a word we know", "served_by is not a word we know", "status is not a word we know",
    ]  # fmt: skip


def test_a_second_pick_is_asked_only_where_the_first_says_nothing(read):
    mapping = {"arrived_at": "t", "status": ["flag", "code"]}
    rows = [
        {"t": START_S, "flag": "timeout", "code": "?"},
        {"t": START_S + 1, "code": 200},
        {"t": START_S, "code": "?"},
    ]
    reading = read(rows, form="mapped", map=mapping)
    assert reading.rows["status"].to_list() == ["timeout", "ok"]
    assert [reject.reason for reject in reading.rejects] == ["status is not a word we know"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"status": {"field": "s", "words": {"a": "fine"}}}, "'fine' in 'status' must be one of ok, length"),
        ({"served_by": {"value": "us"}}, "'us' in 'served_by' must be one of backend, gateway_cache"),
        ({"operation": {"value": "sing"}}, "'sing' in 'operation' must be one of chat"),
    ],
)
def test_a_mapping_cannot_bring_words_of_its_own(entry, words):
    with pytest.raises(ConfigError, match=words):
        parse_mapping({"arrived_at": "t", **entry})


def test_counts_stay_true_and_a_rejected_call_of_a_trace_has_its_place(tmp_path):
    spans = [
        {"traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": "chat m", "kind": 3, "startTimeUnixNano": str(at),
         "endTimeUnixNano": str(at + 2_000_000_000), "attributes": [
             {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
             {"key": "gen_ai.usage.input_tokens", "value": {"intValue": str(tokens)}},
             {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "5"}}]}
        for n, (at, tokens) in enumerate(
            [(1_772_359_200_000_000_000, 7), (1_000_000_000_000_000_000, 7), (1_772_359_200_000_000_000, 10**9)], 1
        )
    ]  # fmt: skip
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [s]}]}]}) + "\n" for s in spans))
    result = ingested(tmp_path / "home", path, form="otel")
    assert counts(result) == (3, 1, 0, 2)
    assert lake(tmp_path / "home")["prompt_tokens"].to_list() == [7]
    assert sorted(rejects(tmp_path / "home")["reason"]) == ["implausible token count", "time out of range"]
