"""The flat formats: one real-shaped record each, as their documentation has it, and what must come out."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

ENVOY = {
    "start_time": "2026-03-01T10:00:00.250Z", "duration": 2500, "response_code": 200, "response_flags": "-",
    "x-envoy-upstream-service-time": "300", "x-request-id": "e1", "upstream_host": "10.0.0.1:8000",
    "gen_ai.request.model": "chat", "gen_ai.response.model": "chat-8b", "gen_ai.usage.input_tokens": 120,
    "gen_ai.usage.output_tokens": 40, "gen_ai.usage.total_tokens": 160, "session.id": "s1",
}  # fmt: skip
KONG = {
    "started_at": 1772359200250, "latencies": {"request": 2600, "proxy": 2500, "kong": 100},
    "request": {"id": "k1"}, "response": {"status": 200}, "consumer": {"username": "team-a"},
    "ai": {"proxy": {
        "meta": {"provider_name": "openai", "request_model": "chat", "response_model": "chat-8b", "llm_latency": 2500},
        "usage": {"prompt_tokens": 120, "completion_tokens": 40, "total_tokens": 160, "time_per_token": 50},
    }},
}  # fmt: skip
HELICONE = {
    "request_id": "h1", "request_created_at": "2026-03-01T10:00:00.250", "response_status": 200,
    "response_model": "chat-8b", "request_model": "chat", "request_user_id": "u1", "delay_ms": 2500,
    "time_to_first_token": 300, "prompt_tokens": 120, "completion_tokens": 40, "prompt_cache_read_tokens": 20,
    "request_properties": {"Helicone-Session-Id": "s1"},
}  # fmt: skip
OPENROUTER = {
    "id": "gen-1", "created_at": "2026-03-01T10:00:00.250Z", "model": "org/chat-8b", "cancelled": False,
    "latency": 300, "generation_time": 2500, "tokens_prompt": 99, "tokens_completion": 33,
    "native_tokens_prompt": 120, "native_tokens_completion": 40, "native_tokens_cached": 20, "finish_reason": "length",
}  # fmt: skip


@pytest.fixture
def rows(tmp_path):
    def read(form, *records, **settings):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return ingested(tmp_path / "home", path, form=form, **settings), lake(tmp_path / "home")

    return read


@pytest.mark.parametrize(
    ("record", "form"),
    [(ENVOY, "envoy-ai-gateway"), (KONG, "kong"), (HELICONE, "helicone"), (OPENROUTER, "openrouter")],
)
def test_one_record_of_each_by_name_and_by_auto(rows, record, form):
    for asked in (form, "auto"):
        result, found = rows(asked, record)
        assert result.files[0].source == form
        assert found.select("prompt_tokens", "output_tokens", "e2e_s").row(0) == (120, 40, 2.5)
        assert found["arrived_at"][0].isoformat() == "2026-03-01T10:00:00.250000+00:00"
        assert found["model"][0].endswith("chat-8b")
        assert len(found) == 1


def test_envoy_says_why_there_was_no_response(rows):
    ends = {"DC": "aborted", "UT": "timeout", "UF": "error", "RL": "rejected", "-": "error"}
    records = [
        {**ENVOY, "x-request-id": f"e{n}", "response_code": 0, "response_flags": flag} for n, flag in enumerate(ends)
    ]
    result, found = rows(
        "envoy-ai-gateway", *records, {"start_time": "2026-03-01T10:00:01Z", "mcp.method.name": "tools/call"}
    )
    assert found.sort("request_id")["status"].to_list() == list(ends.values())
    assert (counts(result), result.files[0].ignored) == ((5, 5, 0, 0), 1)


def test_envoy_session_first_byte_and_null_usage(rows):
    lost = {**ENVOY, "x-request-id": "e2", "gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    _, found = rows("envoy-ai-gateway", ENVOY, lost)
    assert found.sort("request_id").select("session_id", "ttft_s", "prompt_tokens").rows() == [
        ("s1", 0.3, 120), ("s1", 0.3, None),
    ]  # fmt: skip


def test_kong_zeros_are_missing_metrics(rows):
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    bare = {**KONG, "ai": {"proxy": {"meta": {"llm_latency": 0}, "usage": usage}}, "response": {"status": 429}}
    _, found = rows("kong", bare)
    assert found.select("prompt_tokens", "output_tokens", "e2e_s", "status").row(0) == (None, None, 2.6, "rejected")
    assert found["flags"].to_list() == [["usage_missing"]]


def test_helicone_session_cache_and_cancelled(rows):
    _, found = rows("helicone", HELICONE, {**HELICONE, "request_id": "h2", "response_status": -3})
    found = found.sort("request_id")
    assert found.select("session_id", "cached_prompt_tokens", "ttft_s", "status").rows() == [
        ("s1", 20, 0.3, "ok"), ("s1", 20, 0.3, "aborted"),
    ]  # fmt: skip


@pytest.mark.shared
def test_agent_spans_through_a_mapping(shared_dir, tmp_path):
    mapping = {
        "request_id": "span_id", "session_id": "session_id", "arrived_at": "start_time_iso", "ended_at": "end_time_iso",
        "model": "request_model", "prompt_tokens": "input_tokens", "output_tokens": "output_tokens",
        "finish_reason": "finish_reasons", "status": "status_code",
    }  # fmt: skip
    path = shared_dir / "traces" / "agent-otel" / "exgentic_swebench.jsonl"
    result = ingested(tmp_path / "home", path, form="mapped", mapping=mapping, zero_usage="missing", timezone="UTC")
    found = lake(tmp_path / "home")
    assert counts(result) == (2294, 2294, 0, 0)
    assert found["session_id"].n_unique() == 46
    failed = found.filter(status="error")
    assert (len(failed), failed["prompt_tokens"].null_count(), failed["output_tokens"].null_count()) == (148, 148, 148)
