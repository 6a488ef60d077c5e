"""AIPerf's profile export: names early and late, warm-up, cancelled requests, sub-agents, units."""

from __future__ import annotations

import json

import pytest

from transforms.batches import Batch, Head
from transforms.fleet import Source
from transforms.sources import aiperf

START = 1_759_813_207_532_900_363


def value(number, unit="tokens"):
    return {"value": number, "unit": unit}


def record(metadata=None, metrics=None, **more):
    base = {
        "session_num": 1, "x_request_id": "r", "x_correlation_id": "c", "conversation_id": "v", "turn_index": 0,
        "request_start_ns": START, "request_end_ns": START + 300_000_000, "benchmark_phase": "profiling",
        "was_cancelled": False,
    }  # fmt: skip
    counted = {
        "input_sequence_length": value(550), "output_sequence_length": value(9),
        "time_to_first_token": value(255.5, "ms"), "request_latency": value(297.5, "ms"),
    }  # fmt: skip
    made = {name: v for name, v in {**base, **(metadata or {})}.items() if v is not ...}
    return {"metadata": made, "metrics": counted if metrics is None else metrics, "error": None, **more}


def parse(*records):
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    parsed = aiperf.canonicalise(Batch("a", lines, list(range(len(lines)))), Source("aiperf", "x"))
    assert len(parsed.rows) + len(parsed.rejects) == len(lines)
    return parsed


def test_a_request_with_stamps_exact_to_the_microsecond():
    row = parse(record()).rows.row(0, named=True)
    assert (row["arrived_at"], row["ended_at"]) == (START // 1000, (START + 300_000_000) // 1000)
    assert (row["request_id"], row["session_id"], row["turn"], row["status"]) == ("r", "c", 1, "ok")
    assert (row["prompt_tokens"], row["output_tokens"], row["ttft_s"], row["e2e_s"]) == (550, 9, 0.2555, 0.2975)


def test_counts_of_the_server_go_before_the_client_s():
    metrics = {
        "input_sequence_length": value(550), "usage_prompt_tokens": value(571), "output_sequence_length": value(9),
        "usage_completion_tokens": value(12), "usage_reasoning_tokens": value(4),
        "usage_prompt_cache_read_tokens": value(512), "usage_prompt_cache_write_tokens": value(59),
    }  # fmt: skip
    names = ("prompt_tokens", "cached_prompt_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    assert parse(record(metrics=metrics)).rows.select(names).row(0) == (571, 512, 59, 12, 4)


def test_output_in_two_parts_is_their_sum():
    metrics = {"input_sequence_length": value(1), "output_token_count": value(9), "reasoning_token_count": value(5)}
    assert parse(record(metrics=metrics)).rows.select("output_tokens", "reasoning_tokens").row(0) == (14, 5)


@pytest.mark.parametrize("phase", ["benchmark_phase", "credit_phase"])
def test_warm_up_is_synthetic(phase):
    rows = parse(
        record({"benchmark_phase": ..., phase: "warmup"}), record({"benchmark_phase": ..., phase: "profiling"})
    )
    assert rows.rows["flags"].to_list() == [["synthetic"], []]


@pytest.mark.parametrize(
    ("error", "cancelled", "status"),
    [
        ({"code": 499, "type": "RequestCancellationError", "message": "SECRET"}, True, "aborted"),
        ({"code": 499, "type": "RequestCancellationError"}, False, "aborted"),
        ({"code": 429, "type": "Too Many Requests"}, False, "rejected"),
        ({"code": None, "type": "TimeoutError"}, False, "timeout"),
        ({"code": 500, "type": "Internal Server Error"}, False, "error"),
        ({"type": "InvalidInferenceResultError"}, False, "error"),
        (None, False, "ok"),
    ],
)
def test_errors_by_code_and_class(error, cancelled, status):
    metrics = {"error_isl": value(550)} if error else None
    rows = parse(record({"was_cancelled": cancelled}, metrics, error=error)).rows
    assert rows["status"].to_list() == [status]
    assert rows["prompt_tokens"].to_list() == [550]
    assert "SECRET" not in str(rows.to_dicts())


def test_a_failed_request_may_have_no_metrics_at_all():
    rows = parse({**record({"was_cancelled": True}), "metrics": None}).rows
    assert rows.select("status", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s").row(0) == (
        "aborted", None, None, None, None,
    )  # fmt: skip
    assert rows["flags"].to_list() == [["usage_missing"]]


def test_sub_agents_stand_inside_their_root_s_session():
    rows = parse(
        record({"x_correlation_id": "a", "root_correlation_id": "a", "agent_depth": 0}),
        record({"x_correlation_id": "b", "root_correlation_id": "a", "parent_correlation_id": "a", "agent_depth": 1}),
        record({"x_correlation_id": "c", "parent_correlation_id": "a", "agent_depth": 1}),
        record({"x_correlation_id": ..., "turn_index": 3}),
    ).rows
    assert rows["session_id"].to_list() == ["a", "a", "a", "v"]
    assert rows["agent_id"].to_list() == [None, "b", "c", None]
    assert rows["turn"].to_list() == [1, 1, 1, 4]


def test_a_metric_is_read_in_its_unit():
    metrics = {"time_to_first_token": value(0.25, "s"), "request_latency": value(500_000_000, "ns")}
    assert parse(record(metrics=metrics)).rows.select("ttft_s", "e2e_s").row(0) == (0.25, 0.5)


def test_records_that_cannot_be_used_are_rejected():
    parsed = parse(
        b'{"metadata"', {"metrics": {}}, record(metrics={"input_sequence_length": value(1.5)}),
        record(metrics={"ttft": value(1, "fortnights")}), record({"request_start_ns": True}),
    )  # fmt: skip
    assert [(r.position, r.reason) for r in parsed.rejects] == [
        (0, "not JSON"), (1, "no request record"), (2, "not a whole number"), (3, "unknown unit of time"),
        (4, "not a time"),
    ]  # fmt: skip


def test_recognise_is_narrow():
    assert aiperf.recognise(Head("a", [record()]))
    assert aiperf.recognise(Head("a", [{"metadata": {"timestamp_ns": 1}, "metrics": {}}]))
    assert aiperf.recognise(Head("a", [{"metadata": {"user": "u"}, "metrics": {}}])) is None
    assert aiperf.recognise(Head("a", [{"metadata": {"timestamp_ns": 1}}])) is None
