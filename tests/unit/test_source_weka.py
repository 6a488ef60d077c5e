"""kv-cache-tester sessions: turns, tool waits as logged, sub-agents on the session's clock, block ids, damage."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from transforms.batches import Batch, Head, Parsed
from transforms.fleet import Source
from transforms.sources import bailian, mooncake, weka

ORIGIN_US = 4 * 86_400_000_000  # 1970-01-05


def call(t: float, stop: str = "tool_use", api: float | None = 1.0, **more: Any) -> dict[str, Any]:
    tokens = more.pop("tokens", 130)
    out: dict[str, Any] = {"t": t, "type": "n", "model": "m", "in": tokens, "out": 5, "stop": stop}
    out["hash_ids"] = list(range(1, tokens // 64 + 1))
    return out | ({} if api is None else {"api_time": api}) | more


def session(*requests: dict[str, Any], **more: Any) -> bytes:
    document = {"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": list(requests)}
    return json.dumps(document | more).encode()


def parse(*sessions: bytes, **settings: Any) -> Parsed:
    batch = Batch("t.json", list(sessions), list(range(len(sessions))))
    return weka.canonicalise(batch, Source("weka", "x", **settings))


def started_s(rows: pl.DataFrame) -> list[float]:
    return [(us - ORIGIN_US) / 1e6 for us in rows["arrived_at"]]


def test_a_turn_waits_for_the_tools_of_the_one_before() -> None:
    rows = parse(
        session(
            call(0.0, think_time=0.0, input_types=["text"], output_types=["text", "tool_use"]),
            call(3.0, think_time=2.0, input_types=["tool_result"], output_types=["text"], stop="end_turn"),
            call(9.0, think_time=5.0, input_types=["text"], output_types=["text"], stop="end_turn"),
        )
    ).rows
    assert rows["logged_tool_wait_s"].to_list() == [None, 2.0, None]
    assert rows["tool_calls"].to_list() == [1, 0, 0]
    assert rows["tool_results"].to_list() == [0, 1, 0]
    assert rows["turn"].to_list() == [1, 2, 3]
    assert started_s(rows) == [0.0, 3.0, 9.0]
    assert rows["e2e_s"].to_list() == [1.0, 1.0, 1.0]


def test_a_user_who_answers_a_tool_call_himself_is_no_tool_wait() -> None:
    rows = parse(session(call(0.0), call(60.0, think_time=59.0, input_types=["text"]))).rows
    assert rows["logged_tool_wait_s"].to_list() == [None, None]


def test_think_time_after_an_unknown_end_is_not_this_wait() -> None:
    rows = parse(
        session(
            call(0.0, think_time=0.0),
            call(2.0, stop="", api=None, think_time=1.0, input_types=["tool_result"], output_types=[]),
            call(50.0, think_time=49.0, input_types=["tool_result"]),
        )
    ).rows
    assert rows["logged_tool_wait_s"].to_list() == [None, 1.0, None]
    assert rows["e2e_s"].to_list() == [1.0, None, 1.0]
    assert rows["tool_calls"].to_list() == [1, None, 1]
    assert [("end_unknown" in flags) for flags in rows["flags"]] == [False, True, False]
    assert rows["status"].to_list() == ["ok"] * 3


def test_a_sub_agent_ran_until_its_marker() -> None:
    marker = {"t": 100.0, "type": "subagent", "agent_id": "a1", "duration_ms": 40_000, "status": "completed",
              "requests": [call(0.0), call(6.0, think_time=5.0)]}  # fmt: skip
    parsed = parse(session(call(0.0), marker, call(110.0, think_time=109.0)))
    rows = parsed.rows
    assert parsed.ignored == 1
    assert started_s(rows) == [0.0, 60.0, 66.0, 110.0]
    assert rows["agent_id"].to_list() == [None, "a1", "a1", None]
    assert rows["turn"].to_list() == [1, 1, 2, 2]
    assert rows["logged_tool_wait_s"].to_list() == [None, None, 5.0, 109.0]
    assert rows["request_id"].to_list() == ["s:1", "s:a1:1", "s:a1:2", "s:2"]
    assert rows["session_id"].unique().to_list() == ["s"]


def test_a_launched_sub_agent_begins_at_its_marker_and_one_without_duration_ends_with_its_last_call() -> None:
    launched = {"t": 20.0, "type": "subagent", "agent_id": "a", "duration_ms": None, "status": "async_launched",
                "requests": [call(0.0), call(8.0)]}  # fmt: skip
    silent = {"t": 90.0, "type": "subagent", "agent_id": "b", "duration_ms": None, "status": "completed",
              "requests": [call(0.0), call(29.0, api=1.0)]}  # fmt: skip
    rows = parse(session(call(0.0), launched, silent)).rows
    assert started_s(rows) == [0.0, 20.0, 28.0, 60.0, 89.0]
    assert ["assumed_arrival" in flags for flags in rows["flags"]] == [False, False, False, True, True]


def test_sub_agents_inside_sub_agents_keep_their_own_names() -> None:
    inner = {"t": 10.0, "type": "subagent", "agent_id": "in", "duration_ms": 4000, "requests": [call(1.0)]}
    outer = {"t": 50.0, "type": "subagent", "agent_id": "out", "duration_ms": 20_000, "requests": [call(0.0), inner]}
    rows = parse(session(outer)).rows
    assert rows.select("agent_id").to_series().to_list() == ["out", "in"]
    assert started_s(rows) == [30.0, 37.0]  # the outer one began at 30, the inner one at 30 + 10 - 4


def test_a_call_well_before_the_end_of_the_last_one_overlaps() -> None:
    rows = parse(session(call(0.0, api=10.0), call(9.5), call(9.6, api=1.0), call(10.0), call(3.0))).rows
    assert [("overlap" in flags) for flags in rows["flags"]] == [False, True, False, False, False]
    assert started_s(rows) == [0.0, 3.0, 9.5, 9.6, 10.0]


def test_block_ids_are_the_sessions_own_and_shared_with_its_sub_agents() -> None:
    marker = {"t": 9.0, "type": "subagent", "agent_id": "a", "duration_ms": 1000, "requests": [call(0.0)]}
    one = parse(session(call(0.0), marker)).rows["prefix_block_ids"].to_list()
    other = parse(session(call(0.0), id="other")).rows["prefix_block_ids"].to_list()
    assert one[0] == one[1]
    assert not set(one[0]) & set(other[0])
    assert len(set(one[0])) == 2


def test_global_block_ids_stay_as_they_are() -> None:
    rows = parse(session(call(0.0), hash_id_scope="global")).rows
    assert rows["prefix_block_ids"].to_list() == [[1, 2]]


def test_block_ids_that_do_not_fit_the_prompt_are_dropped() -> None:
    rows = parse(session(call(0.0), call(1.0, hash_ids=[1]), call(2.0, hash_ids=None), call(3.0, tokens=63))).rows
    assert [ids if ids is None else len(ids) for ids in rows["prefix_block_ids"]] == [2, None, None, 0]
    assert ["hash_block_mismatch" in flags for flags in rows["flags"]] == [False, True, False, False]
    assert rows["prefix_block_tokens"].to_list() == [64, None, None, 64]
    assert rows["prompt_tokens"].to_list() == [130, 130, 130, 63]


def test_one_bad_call_is_rejected_and_the_rest_of_its_session_stays() -> None:
    parsed = parse(
        session(
            call(0.0), call(1.0) | {"in": True}, {"type": "n", "in": 1, "out": 1}, call(2.0), call(3.0) | {"t": "x"}
        )
    )
    assert [reject.reason for reject in parsed.rejects] == ["no start of the call", "not a number", "not a number"]
    assert parsed.rows["turn"].to_list() == [1, 2]
    assert parsed.rows["prompt_tokens"].to_list() == [130, 130]


@pytest.mark.parametrize("far", [1e308, 2**70, -1e12, 1e11])
def test_stamps_beyond_any_log_are_rejected_without_shifting_turns(far: float) -> None:
    marker = {"t": 5.0, "type": "subagent", "agent_id": "a", "duration_ms": far, "requests": [call(0.0)]}
    parsed = parse(session(call(0.0), call(far), marker, call(9.0)))
    assert len(parsed.rejects) in (1, 2)
    assert parsed.rows.filter(pl.col("agent_id").is_null())["turn"].to_list() == [1, 2]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id":"s"}', "no session with requests"),
        (b'{"id":"s","requests":7}', "no session with requests"),
        (b'{"id":"s","requests":[{"t":0', "not JSON"),
        (b"[1]", "not a JSON object"),
    ],
)
def test_what_is_no_session_is_rejected(line: bytes, reason: str) -> None:
    assert [reject.reason for reject in parse(line).rejects] == [reason]


def test_damaged_json_is_read_all_the_same() -> None:
    line = session(call(0.0)).replace(b'"out": 5', b'"out": 5, "out": 7, "ttft": NaN')
    rows = parse(line).rows
    assert rows["output_tokens"].to_list() == [7]


def test_sessions_start_at_the_origin_or_at_points_of_a_poisson_process() -> None:
    together = parse(*(session(call(0.0), id=str(n)) for n in range(3))).rows
    assert started_s(together) == [0.0] * 3
    assert together["flags"].to_list() == [["assumed_start", "assumed_origin"]] * 3
    spread = parse(*(session(call(0.0), id=str(n)) for n in range(3)), session_rate_per_s=0.5).rows
    assert started_s(spread) == [weka.start_offset_us(0.5, n) / 1e6 for n in range(3)]
    given = parse(session(call(0.0)), origin="2026-03-01T00:00:00Z").rows
    assert given["flags"].to_list() == [["assumed_start"]]


def test_points_of_the_process_have_the_rate_that_is_asked_for() -> None:
    points_s = np.array([weka.start_offset_us(0.25, n) for n in range(2000)]) / 1e6
    gaps_s = np.diff(points_s)
    assert (gaps_s > 0).all()
    assert gaps_s.mean() == pytest.approx(4.0, rel=0.06)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.08)


def test_a_file_in_the_middle_of_a_run_takes_its_own_point() -> None:
    batch = Batch("t.json", [session(call(0.0))], [0], {"ordinal": 7})
    rows = weka.canonicalise(batch, Source("weka", "x", session_rate_per_s=0.5)).rows
    assert started_s(rows) == [weka.start_offset_us(0.5, 7) / 1e6]


def test_traces_that_look_alike_are_told_apart() -> None:
    heads = {
        "weka": Head("a", [json.loads(session(call(0.0)))]),
        "mooncake": Head("b", [{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}]),
        "bailian": Head("c", [{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.0, "input_length": 1,
                               "output_length": 1, "hash_ids": [1], "turn": 1}]),
        "": Head("d", [{"session_id": "s", "timestamp": 0, "input_length": 1, "output_length": 1, "delay": 4}]),
    }  # fmt: skip
    modules = {"weka": weka, "mooncake": mooncake, "bailian": bailian}
    for name, head in heads.items():
        assert [found for found, module in modules.items() if module.recognise(head)] == ([name] if name else [])
