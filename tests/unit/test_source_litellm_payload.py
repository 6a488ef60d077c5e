"""LiteLLM's logging payloads: the spend log's rules under the payload's names."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

from transforms.batches import Batch, Head
from transforms.fleet import Source
from transforms.sources import litellm, litellm_payload

START = 1_772_359_200.0
START_US = 1_772_359_200_000_000


def payload(**more):
    base = {
        "id": "a", "trace_id": "t", "call_type": "acompletion", "stream": True, "status": "success",
        "custom_llm_provider": "openai", "startTime": START, "endTime": START + 8, "completionStartTime": START + 0.4,
        "response_time": 0.4, "model": "gpt", "model_group": "chat", "model_id": "d1", "cache_hit": None,
        "prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30, "request_tags": [],
        "metadata": {"user_api_key_hash": "h", "user_api_key_team_id": "team", "requester_ip_address": "SECRET"},
        "messages": [{"role": "user", "content": "SECRET"}], "requester_ip_address": "SECRET", "error_str": None,
        "response": {"choices": [{"finish_reason": "stop", "message": {"content": "SECRET"}}]},
        "model_parameters": {"max_tokens": 77, "n": 2}, "hidden_params": {"additional_headers": {"x": "SECRET"}},
    }  # fmt: skip
    return {name: value for name, value in {**base, **more}.items() if value is not ...}


def parse(*payloads, **settings):
    lines = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in payloads]
    given = {**litellm_payload.DEFAULTS, **settings}
    batch = Batch("a", lines, list(range(len(lines))))
    parsed = litellm_payload.canonicalise(batch, Source("litellm-payload", "x", **given))
    assert len(parsed.rows) + len(parsed.rejects) + parsed.ignored == len(lines)
    return parsed


def finished(tmp_path, *payloads, **settings):
    path = tmp_path / "payloads.jsonl"
    path.write_text("".join(json.dumps(p) + "\n" for p in payloads))
    ingested(tmp_path / "home", path, form="litellm-payload", privacy="plain", **settings)
    return lake(tmp_path / "home")


def test_a_payload_is_the_attempt_its_spend_log_row_tells_of(tmp_path):
    rows = finished(tmp_path, payload())
    row = rows.row(0, named=True)
    assert (row["request_id"], row["session_id"], row["tenant"], row["model"]) == ("a", "t", "team", "chat")
    assert (row["prompt_tokens"], row["output_tokens"], row["choices"]) == (10, 20, 2)
    assert (row["ttft_s"], row["e2e_s"], row["status"], row["finish_reason"]) == (0.4, 8.0, "ok", "stop")
    assert (row["requested_output_tokens"], row["tool_calls"], row["tool_results"]) == (77, 0, 0)
    assert row["flags"] == ["session_unproven"]
    assert "SECRET" not in str(row)


@pytest.mark.parametrize(
    ("more", "ttft_s"),
    [
        ({"stream": False, "completionStartTime": START + 8, "response_time": 8.0}, None),
        ({"stream": False, "completionStartTime": START + 8, "completion_tokens": 1}, None),
        ({"stream": None, "completionStartTime": START + 8}, None),
        ({"completionStartTime": ..., "response_time": 0.5}, 0.5),
        ({"completionStartTime": ..., "stream": None, "response_time": 8.0}, None),
    ],
)
def test_response_time_is_a_first_token_of_streams_only(tmp_path, more, ttft_s):
    rows = finished(tmp_path, payload(**more))
    assert rows.select("ttft_s", "e2e_s").row(0) == (ttft_s, 8.0)


def test_stamps_may_be_texts_without_a_zone(tmp_path):
    texts = {
        "startTime": "2026-03-01 10:00:00.000000", "endTime": "2026-03-01 10:00:08.000000",
        "completionStartTime": "2026-03-01 10:00:00.400000",
    }  # fmt: skip
    rows = finished(tmp_path, payload(**texts))
    assert rows.select("ttft_s", "e2e_s").row(0) == (0.4, 8.0)
    assert rows["arrived_at"][0].timestamp() == START


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"error_information": {"error_code": "429", "error_class": "RateLimitError"}}, "rejected"),
        ({"error_information": {"error_code": "408", "error_class": "Timeout"}}, "timeout"),
        ({"error_information": {"error_code": "", "error_class": "CancelledError"}}, "aborted"),
        ({"error_information": {"error_code": 400, "error_class": "ContextWindowExceededError"}}, "rejected"),
        ({"metadata": {"error_information": {"error_code": "500", "error_class": "X"}}}, "error"),
        ({"error_str": "litellm.RateLimitError: SECRET"}, "rejected"),
        ({"error_str": "litellm.Timeout: SECRET"}, "timeout"),
        ({"error_str": "SECRET"}, "error"),
        ({}, "error"),
    ],
)
def test_failures_by_code_and_class(error, status):
    rows = parse(payload(status="failure", response=..., prompt_tokens=0, completion_tokens=0, **error)).rows
    assert rows.select("status", "prompt_tokens", "output_tokens").row(0) == (status, None, None)
    assert "usage_missing" in rows["flags"][0]
    assert "SECRET" not in str(rows.to_dicts())


def test_a_payload_of_before_there_was_a_status_failed_if_it_has_an_error():
    rows = parse(payload(status=..., error_str="litellm.RateLimitError: SECRET"), payload(id="b", status=...)).rows
    assert rows["status"].to_list() == ["rejected", "ok"]


def test_an_answer_cut_at_its_limit_and_one_of_the_gateway_s_cache():
    rows = parse(
        payload(response={"choices": [{"finish_reason": "length", "message": {}}]}),
        payload(id="b", cache_hit=True), payload(id="c_cache_hit1772359200.4", cache_hit=False),
    ).rows  # fmt: skip
    assert rows["status"].to_list() == ["length", "ok", "ok"]
    assert rows["served_by"].to_list() == ["backend", "gateway_cache", "gateway_cache"]


@pytest.mark.parametrize("key", ["litellm_call_id", "call_id"])
def test_attempts_of_one_call_are_one_request(tmp_path, key):
    failed = {"status": "failure", "prompt_tokens": 0, "completion_tokens": 0, "response": ...}
    rows = finished(
        tmp_path,
        payload(id="x2", startTime=START + 3, endTime=START + 5, completionStartTime=START + 4, **{key: "L"}),
        payload(id="x1", endTime=START + 1, error_information={"error_code": "429"}, **{key: "L"}, **failed),
    )
    assert rows["request_id"].to_list() == ["L", "L"]
    assert rows.select("record_id", "attempt", "status").rows() == [("x1", 1, "rejected"), ("x2", 2, "ok")]


def test_usage_comes_from_the_metadata_or_the_response():
    details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 5}}
    anthropic = {"cache_read_input_tokens": 6, "cache_creation_input_tokens": 3}
    rows = parse(
        payload(metadata={"usage_object": details}),
        payload(response={"choices": [], "usage": details}),
        payload(metadata=json.dumps({"usage_object": anthropic})),
    ).rows
    names = ("cached_prompt_tokens", "cache_write_tokens", "reasoning_tokens")
    assert rows.select(names).rows() == [(8, None, 5), (8, None, 5), (6, 3, None)]


def test_kinds_of_calls(tmp_path):
    rows = finished(
        tmp_path,
        payload(call_type="aembedding", completion_tokens=0),
        payload(id="b", call_type="aretrieve_batch", prompt_tokens=31_493_594),
        payload(id="c", request_tags=["litellm-internal-health-check"]),
    )
    assert rows["operation"].to_list() == ["embedding", "batch", "chat"]
    assert ["aggregate" in flags for flags in rows["flags"]] == [False, True, False]
    assert ["synthetic" in flags for flags in rows["flags"]] == [False, False, True]


def test_numbers_of_attempts_and_choices_that_no_log_has_are_unknown(tmp_path):
    damaged = {"metadata": {"attempted_retries": 2**40}, "model_parameters": {"n": 2**40}}
    rows = finished(tmp_path, payload(litellm_call_id="L", **damaged))
    assert rows.select("attempt", "choices").row(0) == (1, None)


def test_a_tool_call_of_the_gateway_is_no_request():
    assert parse(payload(metadata={"mcp_tool_call_metadata": {"name": "search"}})).ignored == 1


def test_a_session_the_client_names_is_one():
    rows = parse(payload(metadata={"session_id": "named"}), payload(session_id="given")).rows
    assert rows["session_id"].to_list() == ["named", "given"]
    assert ["session_unproven" in flags for flags in rows["flags"]] == [False, True]


def test_records_that_cannot_be_used_are_rejected():
    parsed = parse(b"{", b"[1]", payload(prompt_tokens=1.5), payload(startTime="soon"), payload(metadata="x"))
    assert sorted((r.position, r.reason) for r in parsed.rejects) == [
        (0, "not JSON"), (1, "not a JSON object"), (2, "not a whole number"), (3, "not a time"),
    ]  # fmt: skip


def test_recognise_parts_the_payload_from_the_spend_log():
    logged, spent = payload(), {"request_id": "a", "startTime": "x", "endTime": "y", "call_type": "c"}
    assert litellm_payload.recognise(Head("a", [logged]))
    assert litellm.recognise(Head("a", [logged])) is None
    assert litellm_payload.recognise(Head("a", [spent])) is None
    assert litellm_payload.recognise(Head("a", [{**logged, "request_id": "a"}])) is None
    assert litellm_payload.recognise(Head("a", [{"id": "a", "call_type": "c", "startTime": 1, "endTime": 2}])) is None


def test_one_object_a_file_is_read_and_recognised(tmp_path):
    folder = tmp_path / "bucket" / "2026-03-01"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / f"time-10-00-00_{name}.json").write_text(json.dumps(payload(id=name), indent=4))
    for form in ("litellm-payload", "auto"):
        assert counts(ingested(tmp_path / form, folder.parent, form=form)) == (3, 3, 0, 0)
