"""Claude Code transcripts: calls over several lines, forks, side chains, parallel tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.reading.rows import Reading, read_rows
from transforms.batches import Batch, Parsed
from transforms.fleet import Source
from transforms.sources import claude_code

SOURCE = Source("claude-code", "x")


def assistant(uuid: str, parent: str | None, second: int, message: str, output: int = 5, **more: Any) -> dict[str, Any]:
    content = more.pop("content", [{"type": "text", "text": "x"}])
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": output}
    body = {
        "id": message,
        "model": more.pop("model", "m"),
        "content": content,
        "stop_reason": "tool_use",
        "usage": usage,
    }
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "timestamp": f"2026-03-01T10:00:{second:02}.000Z",
            "sessionId": "s", "message": body, "requestId": f"req_{message}", **more}  # fmt: skip


def user(uuid: str, parent: str | None, second: int, *results: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": r} for r in results] or "hi"
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "timestamp": f"2026-03-01T10:00:{second:02}.000Z",
            "sessionId": "s", "message": {"role": "user", "content": content}, **more}  # fmt: skip


def parse(*records: Any, name: str = "s.jsonl") -> Parsed:
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    parsed = claude_code.canonicalise(Batch(name, lines, list(range(len(lines)))), SOURCE)
    assert len(parsed.rows) + parsed.duplicates + len(parsed.rejects) + parsed.ignored == len(lines)
    return parsed


def tool(*ids: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": i, "name": "Bash", "input": {}} for i in ids]


def test_a_call_arrives_with_the_last_of_its_parallel_results() -> None:
    rows = parse(
        user("u1", None, 0),
        assistant("a1", "u1", 2, "m1", content=tool("t1")),
        assistant("a2", "a1", 3, "m1", content=tool("t2")),
        user("u2", "a2", 5, "t1"),
        user("u3", "u2", 9, "t2"),
        assistant("a3", "u3", 12, "m2"),
    ).rows
    assert rows["tool_calls"].to_list() == [2, 0]
    assert rows["tool_results"].to_list() == [0, 2]
    first, second = rows["arrived_at"].to_list()
    assert second - first == 9_000_000
    assert [e - a for e, a in zip(rows["ended_at"], rows["arrived_at"], strict=True)] == [3_000_000, 3_000_000]
    assert rows["prompt_tokens"].to_list() == [100, 100]


def test_two_requests_may_share_a_message_id_but_not_an_identity() -> None:
    one, two = assistant("a", None, 1, "m"), assistant("b", None, 2, "m")
    two["requestId"] = "another"
    rows = parse(one, two).rows
    assert rows["request_id"].to_list() == ["m", "m:another"]


def test_a_side_chain_has_its_own_agent_and_its_replay_loses() -> None:
    rows = parse(
        user("u", None, 0),
        assistant("a", "u", 1, "m1"),
        user("su", None, 2, isSidechain=True),
        assistant("sa", "su", 3, "m2", isSidechain=True),
        assistant("sb", "sa", 4, "m1", isSidechain=True, requestId="req_other"),
    ).rows
    assert rows["request_id"].to_list() == ["m1", "m2"]
    assert rows["agent_id"].to_list() == [None, "su"]


def test_local_messages_bare_strings_and_unknown_kinds_are_no_requests() -> None:
    parsed = parse(
        b'"a bare string"', assistant("a", None, 1, "m", model="<synthetic>"), {"type": "summary"}, {"type": "x"}
    )
    assert (len(parsed.rows), parsed.ignored, list(parsed.rejects)) == (0, 4, [])


def test_lines_out_of_order_give_no_negative_duration() -> None:
    rows = parse(assistant("a2", "a1", 8, "m", 70), user("u", None, 1), assistant("a1", "u", 4, "m", 2)).rows
    assert (rows["ended_at"] - rows["arrived_at"]).to_list() == [7_000_000]
    assert rows["output_tokens"].to_list() == [70]


def test_no_text_of_the_transcript_reaches_a_row() -> None:
    record = user("u", None, 0)
    record["message"]["content"] = "SECRET"
    reply = assistant("a", "u", 1, "m", content=[{"type": "text", "text": "SECRET"}], cwd="/SECRET", gitBranch="SECRET")
    assert "SECRET" not in parse(record, reply).rows.write_json()


def read(path: Path) -> Reading:
    return read_rows(path, Source("claude-code", str(path)))


@pytest.mark.shared
def test_shared_cases(shared_dir: Path) -> None:
    cases = shared_dir / "cases/logs"
    one = read(cases / "01-claude-dup-content-blocks.jsonl")
    assert one.rows.select("prompt_tokens", "cached_prompt_tokens", "output_tokens", "tool_calls").rows() == [
        (22006, 20000, 310, 1)
    ]
    assert one.duplicates == 2
    early = read(cases / "02-claude-early-snapshot.jsonl").rows
    assert (early["output_tokens"][0], early["e2e_s"][0]) == (310, 4.0)
    side = read(cases / "04-claude-sidechain-replay.jsonl")
    assert (side.rows["output_tokens"].to_list(), side.duplicates) == ([50], 1)
    agent = read(cases / "05-claude-subagent/proj/s1/subagents/agent-a1.jsonl").rows
    assert agent.select("session_id", "agent_id", "output_tokens").rows() == [("s1", "a1", 8)]
    assert "output_partial" in agent["flags"][0]
    spliced = read(cases / "08-claude-spliced-line.jsonl")
    assert spliced.rows["request_id"].to_list() == ["msg_1", "msg_3"]
    assert len(spliced.rejects) == 1


@pytest.mark.shared
def test_the_earlier_session_keeps_what_a_resumed_one_copied(shared_dir: Path) -> None:
    folder = shared_dir / "cases/logs/06-claude-resume-copy"
    earlier, resumed = (
        claude_code.canonicalise(Batch(name, lines, list(range(len(lines)))), SOURCE).rows
        for name in ("s1.jsonl", "s1-resumed.jsonl")
        for lines in [(folder / name).read_bytes().splitlines()]
    )
    assert set(earlier["request_id"]) < set(resumed["request_id"])
    assert earlier["precedence"][0] > resumed["precedence"][0]


@pytest.mark.shared
def test_real_transcripts(shared_dir: Path) -> None:
    files = sorted(shared_dir.glob("traces/claude-code/**/*.jsonl"))
    readings = [read(path) for path in files]
    assert sum(len(r.rows) for r in readings) == 90
    assert all(not r.rejects for r in readings)
    for reading in readings:
        assert (reading.rows["e2e_s"].drop_nulls() >= 0).all()
