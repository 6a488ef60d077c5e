"""Agent sessions of any shape: no call is lost, doubled or moved, in whatever order and dress the document has it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches import Batch, Parsed
from transforms.fleet import Source
from transforms.sources import weka

ORIGIN_US = 4 * 86_400_000_000  # 1970-01-05
SOURCE = Source("weka", "x")


@st.composite
def call(draw: st.DrawFn, at: int) -> dict[str, Any]:
    """A call that begins in second `at`, with whatever may be missing missing."""
    blocks = draw(st.integers(0, 4))
    out = {
        "t": float(at),
        "type": draw(st.sampled_from(["n", "s"])),
        "in": blocks * 64 + draw(st.integers(0, 63)),
        "out": draw(st.integers(0, 99)),
        "stop": draw(st.sampled_from(["tool_use", "end_turn", ""])),
        "hash_ids": draw(st.lists(st.integers(0, 30), min_size=blocks, max_size=blocks)),
        "think_time": float(draw(st.integers(0, 9))),
        "input_types": draw(st.sampled_from([["text"], ["tool_result"], ["text", "tool_result"]])),
        "api_time": draw(st.sampled_from([0.5, 2.0, None])),
    }
    return {name: value for name, value in out.items() if value is not None}


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some calls, each in a second of its own."""
    return [draw(call(at)) for at in sorted(draw(st.sets(st.integers(0, 200), min_size=1, max_size=6)))]


@st.composite
def requests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A session's calls and the markers of its sub-agents."""
    marks = draw(st.lists(st.tuples(calls(), st.integers(0, 300), st.integers(0, 90_000)), max_size=3))
    markers = [
        {"t": t + 0.25, "type": "subagent", "agent_id": f"a{n}", "duration_ms": duration_ms, "requests": nested}
        for n, (nested, t, duration_ms) in enumerate(marks)
    ]
    return [*draw(calls()), *markers]


def document(found: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": found} | more


def parse(line: bytes) -> Parsed:
    return weka.canonicalise(Batch("t.json", [line], [0]), SOURCE)


def flat(found: list[dict[str, Any]]) -> dict[tuple[str | None, float], dict[str, Any]]:
    """Every call by its agent and its start in seconds on the session's clock."""
    out = {(None, item["t"]): item for item in found if item["type"] != "subagent"}
    for marker in found:
        if marker["type"] == "subagent":
            begin = marker["t"] - marker["duration_ms"] / 1000
            out |= {(marker["agent_id"], begin + item["t"]): item for item in marker["requests"]}
    return out


@settings(max_examples=80, deadline=None)
@given(requests())
def test_every_call_is_one_row_in_its_place(found: list[dict[str, Any]]) -> None:
    parsed = parse(json.dumps(document(found)).encode())
    wanted = flat(found)
    assert (len(parsed.rows), len(parsed.rejects)) == (len(wanted), 0)
    assert parsed.ignored == sum(item["type"] == "subagent" for item in found)
    rows = parsed.rows.to_dicts()
    starts = {(agent, round(at * 1e6)): item for (agent, at), item in wanted.items()}
    for row in rows:
        item = starts[row["agent_id"], row["arrived_at"] - ORIGIN_US]
        assert (row["prompt_tokens"], row["output_tokens"]) == (item["in"], item["out"])
        assert row["e2e_s"] == item.get("api_time")
    for agent in {row["agent_id"] for row in rows}:
        own = sorted((row for row in rows if row["agent_id"] == agent), key=lambda row: row["turn"])
        assert [row["turn"] for row in own] == list(range(1, len(own) + 1))
        assert all(before["arrived_at"] <= after["arrived_at"] for before, after in pairwise(own))
        assert own[0]["logged_tool_wait_s"] is None
        for before, after in pairwise(own):
            is_wait = (
                before["finish_reason"] == "tool_use" and before["e2e_s"] is not None and after["tool_results"] > 0
            )
            assert (after["logged_tool_wait_s"] is not None) == is_wait


@settings(max_examples=80, deadline=None)
@given(requests(), st.data())
def test_order_and_dress_of_the_document_do_not_matter(found: list[dict[str, Any]], data: st.DataObject) -> None:
    plain = parse(json.dumps(document(found)).encode()).rows
    shuffled = data.draw(st.permutations(found))
    dressed = json.dumps(document(shuffled, note=float("nan")), indent=data.draw(st.sampled_from([None, 2]))).encode()
    assert by_id(parse(dressed).rows).equals(by_id(plain))


@settings(max_examples=80, deadline=None)
@given(requests())
def test_block_ids_are_equal_where_they_were_and_nowhere_else(found: list[dict[str, Any]]) -> None:
    line = json.dumps(document(found)).encode()
    own = [ids for row in flat(found).values() for ids in row["hash_ids"]]
    given_ids = parse(line).rows["prefix_block_ids"].explode().drop_nulls()
    assert len(given_ids) == len(own)
    assert given_ids.n_unique() == len(set(own))
    other = parse(line.replace(b'"id": "s"', b'"id": "other"')).rows["prefix_block_ids"].explode().drop_nulls()
    assert not set(given_ids) & set(other)


@settings(max_examples=80, deadline=None)
@given(requests(), st.data())
def test_damage_costs_the_calls_it_hits_and_no_others(found: list[dict[str, Any]], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(found) - 1))
    name, value = data.draw(st.sampled_from([("t", "x"), ("t", True), ("in", 1.5), ("out", []), ("hash_ids", [-1])]))
    hit = [item | ({name: value} if n == number else {}) for n, item in enumerate(found)]
    parsed = parse(json.dumps(document(hit)).encode())
    is_harmless = found[number]["type"] == "subagent" and name in ("in", "out")
    lost = 0 if is_harmless else len(found[number].get("requests", [number]))
    assert (len(parsed.rows), len(parsed.rejects)) == (len(flat(found)) - lost, lost)


def by_id(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("request_id")
