"""Codex rollouts: running totals, re-emitted counts, forks, order of lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from flows.reading.rows import Reading, read_rows
from transforms.batches import Batch, Parsed
from transforms.fleet import Source
from transforms.sources import codex

SOURCE = Source("codex", "x")


def line(ms: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-05-01T10:{ms // 60000:02}:{ms // 1000 % 60:02}.{ms % 1000:03}Z",
        "type": kind,
        "payload": payload,
    }


def tokens(ms: int, total: int, output: int = 10) -> dict[str, Any]:
    usage = {"input_tokens": total, "cached_input_tokens": 0, "output_tokens": output, "reasoning_output_tokens": 0}
    return line(ms, "event_msg", type="token_count", info={"total_token_usage": usage})


def parse(*records: dict[str, Any]) -> Parsed:
    lines = [orjson.dumps(r) for r in records]
    parsed = codex.canonicalise(Batch("r.jsonl", lines, list(range(len(lines)))), SOURCE)
    assert len(parsed.rows) + parsed.duplicates + len(parsed.rejects) + parsed.ignored == len(lines)
    return parsed


def test_a_turn_with_a_tool() -> None:
    rows = parse(
        line(0, "session_meta", id="s"),
        line(10, "turn_context", model="m"),
        line(1000, "response_item", type="message", role="user"),
        line(2000, "response_item", type="reasoning"),
        line(3000, "response_item", type="function_call", call_id="c"),
        tokens(3100, 100),
        line(9000, "response_item", type="function_call_output", call_id="c"),
        line(12000, "response_item", type="message", role="assistant"),
        tokens(12100, 250, 30),
    ).rows
    assert rows.select("prompt_tokens", "output_tokens", "tool_calls", "tool_results", "model").rows() == [
        (100, 10, 1, 0, "m"),
        (150, 20, 0, 1, "m"),
    ]
    spans = list(zip(rows["arrived_at"], rows["ended_at"], strict=True))
    assert [end - start for start, end in spans] == [2_000_000, 3_000_000]
    assert spans[1][0] - spans[0][1] == 6_000_000  # the tool wait


def test_a_result_written_before_the_count_belongs_to_the_next_call() -> None:
    rows = parse(
        line(1000, "response_item", type="message", role="user"),
        line(2000, "response_item", type="custom_tool_call"),
        line(4000, "response_item", type="custom_tool_call_output"),
        tokens(4100, 100),
        line(6000, "response_item", type="message", role="assistant"),
        tokens(6100, 300),
    ).rows
    assert rows["tool_results"].to_list() == [0, 1]
    assert (rows["ended_at"] - rows["arrived_at"]).to_list() == [1_000_000, 2_000_000]


def test_a_fork_alone_does_not_count_what_it_copied() -> None:
    parsed = parse(
        line(0, "session_meta", id="f", forked_from_id="p"), tokens(5000, 10), tokens(5001, 20), tokens(9000, 40)
    )
    assert (parsed.rows["prompt_tokens"].to_list(), parsed.duplicates) == ([20], 2)


def test_totals_that_start_again_are_a_call_of_that_size() -> None:
    assert parse(tokens(1000, 500), tokens(5000, 80)).rows["prompt_tokens"].to_list() == [500, 80]


def test_a_subagent_runs_in_its_parents_session() -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "depth": 1}}}
    rows = parse(line(0, "session_meta", id="child", source=spawn), tokens(1000, 5)).rows
    assert rows.select("session_id", "agent_id").rows() == [("p", "child")]


def read(path: Path) -> Reading:
    return read_rows(path, Source("codex", str(path)))


@pytest.mark.shared
def test_shared_cases(shared_dir: Path) -> None:
    cases = shared_dir / "cases/logs"
    usage = ["prompt_tokens", "cached_prompt_tokens", "output_tokens", "reasoning_tokens"]
    repeated = read(cases / "09-codex-reemitted-token-count.jsonl")
    assert repeated.rows.select(usage).rows() == [(1000, 600, 100, 40), (2000, 1000, 200, 80)]
    parent = read(cases / "10-codex-fork-replay/rollout-parent.jsonl").rows
    fork = read(cases / "10-codex-fork-replay/rollout-fork.jsonl").rows
    assert parent.height == 2
    assert fork.select(usage[:3]).rows() == [(2000, 2000, 50)]
    nothing = read(cases / "12-codex-info-null.jsonl")
    assert (nothing.rows.height, len(nothing.rejects)) == (0, 0)
    disordered = read(cases / "72-transcript-order-and-timestamps.jsonl").rows
    assert disordered["e2e_s"].to_list() == [pytest.approx(12.287)]


@pytest.mark.shared
def test_real_rollouts(shared_dir: Path) -> None:
    small = read(shared_dir / "traces/formats/codex/small.jsonl")
    assert small.rows.height > 0
    assert not small.rejects
    assert (small.rows["e2e_s"] >= 0).all()
