"""Traces of Dynamo: requests by the wall clock, tools between them, graphs and sessions without one."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

from transforms.batches import Batch, Head
from transforms.fleet import Source
from transforms.sources import dynamo

FIXTURES = "traces/formats/ai-dynamo/dynamo/replay/tests/e2e/configs/unified_cli/fixtures/traces"
MS = 1_772_359_200_000


def ended(name, received=0, total=1000, session=None, parent=None, **request):
    context = {"session_id": session} | ({"parent_session_id": parent} if parent else {})
    replay = {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [2**64 - 1, 7]}
    return {
        "schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": MS + received + total,
        "agent_context": context if session else None,
        "request": {"request_id": name, "model": "m", "output_tokens": 16, "request_received_ms": MS + received,
                    "total_time_ms": total, "replay": replay, **request},
    }  # fmt: skip


def tool(session, start, end):
    return {
        "schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": MS + end,
        "agent_context": {"session_id": session},
        "tool": {"tool_call_id": "c", "started_at_unix_ms": MS + start, "ended_at_unix_ms": MS + end},
    }  # fmt: skip


def parse(*records, carry=None, **settings):
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    given = {"origin": "2026-03-01T10:00:00Z", **settings}
    batch = Batch("a", lines, list(range(len(lines))), {} if carry is None else carry)
    return dynamo.canonicalise(batch, Source("dynamo", "x", **given))


def seconds_of(rows):
    return [(us - MS * 1000) / 1e6 for us in rows["arrived_at"]]


def test_a_request_by_the_wall_clock():
    told = {"finish_reason": "tool_calls", "tool_calls": [{"id": "a"}, {"id": "b"}]}
    more = {"cached_tokens": 64, "ttft_ms": 250.5, "input_tokens": 999, "finish_reason_metadata": told}
    row = parse(ended("r", 500, **more)).rows.row(0, named=True)
    assert (row["request_id"], row["arrived_at"], row["e2e_s"]) == ("r", (MS + 500) * 1000, 1.0)
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["output_tokens"]) == (128, 64, 16)
    assert (row["ttft_s"], row["status"], row["tool_calls"]) == (0.2505, "ok", 2)
    assert (row["prefix_block_tokens"], row["prefix_block_ids"]) == (64, [2**64 - 1, 7])
    assert row["session_id"] is None


def test_without_its_replay_part_a_request_has_the_tokens_of_its_metrics():
    rows = parse(ended("r", replay=None, input_tokens=999, request_received_ms=None)).rows
    assert rows["prompt_tokens"].to_list() == [999]
    assert seconds_of(rows) == [0]


def test_sub_agents_stand_in_the_session_at_the_top():
    rows = parse(
        ended("a", session="top"), ended("b", 2000, session="mid", parent="top"),
        ended("c", 4000, session="low", parent="mid"),
    ).rows  # fmt: skip
    assert rows["session_id"].to_list() == ["top"] * 3
    assert rows["agent_id"].to_list() == [None, "mid", "low"]


def test_a_request_waited_for_the_tools_that_ended_before_it():
    carry = {}
    first = parse(ended("a", session="s"), tool("s", 1100, 1500), tool("s", 1200, 3000), tool("t", 1, 2), carry=carry)
    assert (len(first.rows), first.ignored) == (1, 3)
    rows = parse(ended("b", 3010, session="s"), ended("c", 9000, session="s"), carry=carry).rows
    assert rows["logged_tool_wait_s"].to_list() == [1.9, None]
    assert rows["tool_results"].to_list() == [2, None]


def test_a_tool_that_still_runs_held_nothing_up():
    rows = parse(ended("a", session="s"), tool("s", 1100, 8000), ended("b", 2000, session="s")).rows
    assert rows["logged_tool_wait_s"].to_list() == [None, None]


def test_envelopes_are_opened_and_other_events_ignored():
    payload = {"event_type": "request_payload", "request_id": "SECRET"}
    parsed = parse({"timestamp": 1, "event": ended("r")}, payload)
    assert parsed.rows["request_id"].to_list() == ["r"]
    assert parsed.ignored == 1


def test_hashes_that_do_not_fit_are_dropped():
    rows = parse(ended("r", replay={"trace_block_size": 64, "input_length": 200, "input_sequence_hashes": [1]})).rows
    assert rows["prefix_block_ids"].to_list() == [None]
    assert rows["flags"].to_list() == [["hash_block_mismatch"]]


HEADER = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local"}


def node(name, session, before=0, play="p", **more):
    return {
        "request_id": name, "play_id": play, "session_id": session, "model": "m", "input_length": 8, "output_length": 2,
        "hash_ids": [1, 2], "not_before_ms": before, "dependencies": [], **more,
    }  # fmt: skip


def test_a_graph_s_requests_arrive_as_early_as_they_can():
    sequence = [{"request_id": "a", "trigger": "completion", "delay_ms": 1500, "relation": "sequence"},
                {"request_id": "b", "trigger": "completion", "delay_ms": 10, "relation": "join"}]  # fmt: skip
    spawn = [{"request_id": "a", "trigger": "dispatch", "delay_ms": 5, "relation": "spawn"}]
    rows = parse(
        HEADER, node("a", "root", 1000), node("b", "child", 3000, dependencies=spawn),
        node("c", "root", dependencies=sequence), node("a", "root", play="q"),
    ).rows  # fmt: skip
    assert seconds_of(rows) == [1, 3, 3.01, 0]
    assert rows["session_id"].to_list() == ["p", "p", "p", "q"]
    assert rows["agent_id"].to_list() == [None, "child", None, None]
    assert rows["turn"].to_list() == [1, 1, 2, 1]
    assert rows["logged_tool_wait_s"].to_list() == [None, None, 1.5, None]
    assert rows["flags"].to_list() == [[], ["assumed_arrival"], ["assumed_arrival"], []]
    assert rows["prefix_block_tokens"].to_list() == [4] * 4
    ids = rows["prefix_block_ids"].to_list()
    assert ids[0] == ids[1] == ids[2] != ids[3]


def trie(**more):
    return {
        "num_turns": 2, "input_prompt_length": 16, "assistant_response_length": [4, 5],
        "tool_call_output_length": [8, 9], "tool_call_latency": [0.5, 2.0], "final_assistant_response_length": 3,
        **more,
    }  # fmt: skip


def test_a_session_of_turns_grows_by_what_was_answered_and_returned():
    rows = parse(trie(), trie()).rows
    assert rows["prompt_tokens"].to_list() == [16, 28, 42] * 2
    assert rows["output_tokens"].to_list() == [4, 5, 3] * 2
    assert rows["logged_tool_wait_s"].to_list() == [None, 0.5, 2.0] * 2
    assert rows["tool_calls"].to_list() == [1, 1, 0] * 2
    assert rows["turn"].to_list() == [1, 2, 3] * 2
    assert rows["session_id"].n_unique() == 2
    assert seconds_of(rows) == [0, 0.5, 2.5] * 2
    spread = seconds_of(parse(trie(), trie(), session_rate_per_s=0.01).rows)
    assert spread[3] > spread[0] > 0


def test_records_that_cannot_be_used_are_rejected():
    parsed = parse(b"{", {"a": 1}, ended("r", output_tokens=1.5), node("n", "s", "soon"), trie(tool_call_latency=[1]),
                   trie(tool_call_latency=[1, "x"]))  # fmt: skip
    assert [(r.position, r.reason) for r in parsed.rejects] == [
        (0, "not JSON"), (1, "no record of a Dynamo trace"), (2, "not a whole number"), (3, "not a number"),
        (4, "turns of a session differ in number"), (5, "not a number"),
    ]  # fmt: skip


def test_recognise_is_narrow():
    for record in (ended("r"), {"event": ended("r")}, HEADER, trie()):
        assert dynamo.recognise(Head("a", [record]))
    assert dynamo.recognise(Head("a", [{"schema": "other.v1"}, {"num_turns": 2}])) is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "prompt"),
    [("dynamo-standard.jsonl", 2, 8), ("dynamo-agentic.jsonl", 4, 16), ("agentic-mooncake.jsonl", 3, 12),
     ("applied-compute-agentic.jsonl", 3, 16 + 28 + 40)],
)  # fmt: skip
def test_traces_of_dynamo_s_replay(shared_dir, tmp_path, name, rows, prompt):
    for form in ("dynamo", "auto"):
        result = ingested(tmp_path / form, shared_dir / FIXTURES / name, form=form)
        assert counts(result) == (rows, rows, 0, 0)
        assert lake(tmp_path / form)["prompt_tokens"].sum() == prompt
