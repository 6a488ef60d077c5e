"""Requests written over several lines, while their file grows or is rotated: one row each, as if read at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingesting import counts, ingested, lake, lake_hash


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def at(second: int, **more: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{second:02}", **more}


RECEIVED = at(1, event="request.received", rid="r1", obj={"sampling_params": {"max_new_tokens": 9}})
FINISHED = at(4, event="request.finished", rid="r1", out={"meta_info": {"prompt_tokens": 7, "completion_tokens": 2}})
OTHER = at(5, event="request.finished", rid="r2", out={"meta_info": {"prompt_tokens": 1, "completion_tokens": 1}})
START = {"type": "message_start", "ts": "2026-03-01T10:00:00Z", "message": {"id": "m", "usage": {"input_tokens": 7}}}
DELTA = {"type": "message_delta", "ts": "2026-03-01T10:00:03Z", "message_id": "m", "usage": {"output_tokens": 2},
         "delta": {"stop_reason": "end_turn"}}  # fmt: skip
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1_772_359_200, "model": "m"}
CHUNKS = (
    CHUNK | {"choices": [{"index": 0, "delta": {}}]},
    CHUNK | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "first", "second", "settings"),
    [
        ("sglang", RECEIVED, FINISHED, {"timezone": "UTC"}),
        ("anthropic", START, DELTA, {}),
        ("openai", *CHUNKS, {}),
    ],
)
def test_what_was_open_is_replaced_by_what_is_whole(
    tmp_path: Path, form: str, first: dict[str, Any], second: dict[str, Any], settings: dict[str, Any]
) -> None:
    log = tmp_path / "server.log"
    log.write_text(lines(first))
    ingested(tmp_path / "home", log, form=form, **settings)
    before = lake(tmp_path / "home")
    assert before["output_tokens"].to_list() == [None]
    log.write_text(lines(first, second))
    ingested(tmp_path / "home", log, form=form, **settings)
    after = lake(tmp_path / "home")
    assert after.select("prompt_tokens", "output_tokens").rows() == [(7, 2)]
    assert not {"unfinished", "output_partial", "usage_missing"} & set(after["flags"].to_list()[0])
    ingested(tmp_path / "at-once", log, form=form, **settings)
    assert lake(tmp_path / "at-once").equals(after)


def test_a_request_that_finished_in_the_next_file(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "host_0.log.2026-03-01_10").write_text(lines(RECEIVED))
    (tmp_path / "logs" / "host_0.log").write_text(lines(FINISHED, OTHER))
    result = ingested(tmp_path / "home", tmp_path / "logs", form="sglang", timezone="UTC")
    assert counts(result) == (3, 2, 1, 0)
    rows = lake(tmp_path / "home").sort("request_id")
    assert rows.select("request_id", "prompt_tokens", "output_tokens").rows() == [("r1", 7, 2), ("r2", 1, 1)]


def test_the_same_log_again_adds_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(lines(RECEIVED, FINISHED, OTHER))
    ingested(tmp_path / "home", log, form="sglang", timezone="UTC")
    before = lake_hash(tmp_path / "home")
    result = ingested(tmp_path / "home", log, form="sglang", timezone="UTC")
    assert (result.files[0].status, lake_hash(tmp_path / "home")) == ("unchanged", before)


def test_batches_do_not_show(tmp_path: Path) -> None:
    """A log of several batches, whose requests overlap: each is one row."""
    number = 22_000
    padding = "x" * 600
    log = tmp_path / "server.log"
    with log.open("w") as out:
        for n in range(number + 50):
            if n < number:
                out.write(lines(RECEIVED | {"rid": f"r{n}", "obj": {"text": padding}}))
            if n >= 50:
                out.write(lines(FINISHED | {"rid": f"r{n - 50}"}))
    assert log.stat().st_size > 2 * (8 << 20)
    result = ingested(tmp_path / "home", log, form="sglang", timezone="UTC")
    assert counts(result) == (number, number, 0, 0)
    assert result.files[0].ignored == number
    assert lake(tmp_path / "home")["e2e_s"].to_list() == [3.0] * number
