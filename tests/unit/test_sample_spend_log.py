"""The sample's rows are LiteLLM spend-log rows: exact keys, no text, no tokens on failures, times that fit."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from datetime import datetime
from typing import Any

import orjson
import pytest

from transforms.sample.attempts import attempts_of
from transforms.sample.calls import ABORTED, CACHED, FALLBACK, HEALTH, LIMITED, TIMEOUT, TOO_LONG
from transforms.sample.services import AGENT, CHAT, SERVICES, SUMMARISER, Service
from transforms.sample.spend_log import CHECKER, Call, spend_log
from transforms.sample.traffic import traffic_of

KEYS = [
    *("request_id", "call_type", "api_key", "spend", "total_tokens", "prompt_tokens", "completion_tokens"),
    *("startTime", "endTime", "completionStartTime", "model", "model_id", "model_group", "custom_llm_provider"),
    *("api_base", "user", "team_id", "organization_id", "end_user", "metadata", "cache_hit", "cache_key"),
    *("request_tags", "session_id", "status", "litellm_call_id", "agent_id", "proxy_server_request", "response"),
]
STAMP = re.compile(r"2026-11-\d\d \d\d:\d\d:\d\d\.\d{6}")


@pytest.fixture(scope="module")
def logs() -> dict[str, list[dict[str, Any]]]:
    """One day of every service."""
    logs = {}
    for service in SERVICES:
        traffic = traffic_of(service.name, 2, 2, 0.5)
        logs[service.name] = [orjson.loads(line) for line in spend_log(attempts_of(traffic, 1), service)]
    return logs


def at(stamp: str) -> float:
    return datetime.fromisoformat(stamp + "+00:00").timestamp()


def test_rows_have_exactly_the_keys_of_the_spend_log(logs: dict[str, list[dict[str, Any]]]) -> None:
    for rows in logs.values():
        assert len(rows) > 500
        assert all(list(row) == KEYS for row in rows)
        assert all(STAMP.fullmatch(row[key]) for row in rows for key in ("startTime", "endTime", "completionStartTime"))


def test_rows_are_small(logs: dict[str, list[dict[str, Any]]]) -> None:
    for rows in logs.values():
        sizes = [len(orjson.dumps(row)) for row in rows]
        assert 600 < sum(sizes) / len(sizes) < 1_230


def texts(value: Any) -> set[str]:
    """All strings inside the request and response of a row."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set().union(*map(texts, value.values()))
    return set().union(*map(texts, value)) if isinstance(value, list) else set()


def test_no_text_of_prompts_or_answers(logs: dict[str, list[dict[str, Any]]]) -> None:
    words = {"system", "user", "tool", "function", "stop", "length", "tool_calls"}
    for rows in logs.values():
        assert set().union(*(texts(row["proxy_server_request"]) | texts(row["response"]) for row in rows)) <= words


def test_failures_carry_no_tokens_and_successes_do(logs: dict[str, list[dict[str, Any]]]) -> None:
    codes = Counter()
    for row in (row for rows in logs.values() for row in rows):
        assert row["total_tokens"] == row["prompt_tokens"] + row["completion_tokens"]
        assert row["metadata"]["status"] == row["status"]
        if row["status"] == "failure":
            assert row["total_tokens"] == 0
            assert row["metadata"]["usage_object"] is None
            codes[row["metadata"]["error_information"]["error_code"]] += 1
        else:
            assert row["prompt_tokens"] > 0
            assert row["metadata"]["error_information"] is None
            cached = row["metadata"]["usage_object"]["prompt_tokens_details"]["cached_tokens"]
            assert 0 <= cached < row["prompt_tokens"]
    assert set(codes) == {"400", "408", "429", "499", "500", "503"}


def test_times_stand_in_order(logs: dict[str, list[dict[str, Any]]]) -> None:
    for rows in logs.values():
        assert all(row["startTime"] <= row["completionStartTime"] <= row["endTime"] for row in rows)
        assert all(before["startTime"] <= after["startTime"] for before, after in itertools.pairwise(rows))
        assert {row["startTime"][:10] for row in rows} == {"2026-11-10"}


def test_attempts_of_a_call_follow_one_another(logs: dict[str, list[dict[str, Any]]]) -> None:
    for rows in logs.values():
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(row["litellm_call_id"], []).append(row)
        several = [group for group in groups.values() if len(group) > 1]
        assert len(several) > 10
        for group in several:
            assert [row["metadata"]["attempted_retries"] for row in group] == list(range(len(group)))
            assert all(row["status"] == "failure" for row in group[:-1])
            assert all(a["endTime"] <= b["startTime"] for a, b in itertools.pairwise(group))
            assert len({row["session_id"] for row in group}) == 1
        assert len({row["request_id"] for row in rows}) == len(rows)


def test_turns_of_an_agent_wait_for_the_one_before(logs: dict[str, list[dict[str, Any]]]) -> None:
    lines: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in logs[AGENT.name]:
        lines.setdefault((row["session_id"], row["agent_id"]), []).append(row)
    assert sum(agent is not None for _, agent in lines) > 10
    for rows in lines.values():
        assert all(a["endTime"] <= b["startTime"] for a, b in itertools.pairwise(rows))
    spans = {key: (rows[0]["startTime"], rows[-1]["endTime"]) for key, rows in lines.items() if key[1]}
    overlapping = sum(
        a != b and a[0] == b[0] and spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]
        for a in spans
        for b in spans
    )
    assert overlapping > 4


def test_gateway_hits_never_reached_a_backend(logs: dict[str, list[dict[str, Any]]]) -> None:
    hits = [row for row in logs[CHAT.name] if row["cache_hit"] == "True"]
    assert len(hits) > 20
    for row in hits:
        assert re.fullmatch(r"chatcmpl-[0-9a-f]{16}_cache_hit\d{10}\.\d{6}", row["request_id"])
        assert float(row["request_id"].split("_cache_hit")[1]) == pytest.approx(at(row["startTime"]), abs=1e-5)
        assert row["model_id"] == row["api_base"] == ""
        assert at(row["endTime"]) - at(row["startTime"]) < 0.05
    assert {row["cache_hit"] for row in logs[AGENT.name]} == {"None"}


def test_answers_say_why_they_ended(logs: dict[str, list[dict[str, Any]]]) -> None:
    reasons = Counter()
    for row in (row for rows in logs.values() for row in rows if row["response"]):
        choice = row["response"]["choices"][0]
        reasons[choice["finish_reason"]] += 1
        assert (choice["finish_reason"] == "tool_calls") == bool(choice["message"]["tool_calls"]) or (
            choice["finish_reason"] == "length"
        )
        if choice["finish_reason"] == "length" and row["model_group"] == CHAT.model_group:
            assert row["completion_tokens"] == row["proxy_server_request"]["max_tokens"]
    assert set(reasons) == {"stop", "length", "tool_calls"}


def test_streams_know_their_first_token_and_others_do_not(logs: dict[str, list[dict[str, Any]]]) -> None:
    answered = [row for rows in logs.values() for row in rows if row["response"] and row["cache_hit"] != "True"]
    unknown = {row["team_id"] for row in answered if row["completionStartTime"] == row["endTime"] and
               row["completion_tokens"] > 1}  # fmt: skip
    silent = {f"team-{t.name}" for service in SERVICES for t in service.tenants if not t.is_streaming}
    assert unknown == silent | {CHECKER}


def test_only_the_agents_report_reasoning(logs: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in logs.items():
        details = [row["metadata"]["usage_object"]["completion_tokens_details"] for row in rows if row["response"]]
        if name == AGENT.name:
            assert 0.3 < sum(d["reasoning_tokens"] > 0 for d in details) / len(details) < 0.6
        else:
            assert set(map(str, details)) == {"None"}


def call(service: Service, outcome: int, **changed: int) -> dict[str, Any]:
    """The row of one made-up attempt."""
    values = dict.fromkeys(Call._fields, 0) | {"attempt": 1, "outcome": outcome, "uid": 255, "prompt_tokens": 100}
    from transforms.sample.spend_log import _record

    return _record(Call(**{**values, "output_tokens": 10, "end_us": 5_000_000, **changed}), service)


@pytest.mark.parametrize(("outcome", "code"), [(TIMEOUT, "408"), (LIMITED, "429"), (TOO_LONG, "400"), (ABORTED, "499")])
def test_failures_name_their_code(outcome: int, code: str) -> None:
    row = call(CHAT, outcome)
    assert row["metadata"]["error_information"]["error_code"] == code
    assert row["request_id"] == "00000000000000ff-1"


def test_special_rows() -> None:
    fallback = call(SUMMARISER, FALLBACK, attempt=3)
    assert fallback["model_group"] == CHAT.model_group
    assert fallback["metadata"]["attempted_fallbacks"] == 1
    check = call(CHAT, HEALTH, tenant=-1)
    assert check["request_tags"] == [CHECKER]
    assert check["api_key"] == check["team_id"] == CHECKER
    assert call(CHAT, CACHED)["cache_hit"] == "True"
    assert call(CHAT, 0)["api_key"] == hashlib.sha256(b"chat/web").hexdigest()
    late = call(CHAT, 0, start_us=86_399_999_999, end_us=86_400_000_001)
    assert (late["startTime"], late["endTime"]) == ("2026-11-09 23:59:59.999999", "2026-11-10 00:00:00.000001")
    agent = call(AGENT, 0, agent_uid=10, tool_results=2, tool_calls=3)
    assert agent["agent_id"] == "000000000000000a"
    assert agent["proxy_server_request"]["messages"] == [{"role": "tool"}] * 2
    assert len(agent["response"]["choices"][0]["message"]["tool_calls"]) == 3
