"""Captures of event streams, `data: {…}` lines as they went over the wire: recognised and read as their API's."""

from __future__ import annotations

import gzip
import json

import pytest
from ingesting import counts, ingested, lake, rejects

CREATED = 1_772_359_200


def chunk(name, **more):
    return {"id": name, "object": "chat.completion.chunk", "created": CREATED, "model": "m", "choices": [], **more}


def openai(*names):
    said = []
    for name in names:
        said.append(chunk(name, choices=[{"index": 0, "delta": {"content": "SECRET"}, "finish_reason": None}]))
        said.append(chunk(name, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]))
        said.append(chunk(name, usage={"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}))
    return "".join(f"data: {json.dumps(event)}\n\n" for event in said) + "data: [DONE]\n\n"


def anthropic(**stamps):
    usage = {"input_tokens": 25, "output_tokens": 1}
    events = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "c", "usage": usage}},
        {"type": "ping"},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps({**stamps, **event})}\n\n" for event in events)


@pytest.mark.parametrize("form", ["openai", "auto"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_chunks_of_a_completion(tmp_path, form, pack):
    path = tmp_path / "capture.sse"
    path.write_bytes(pack(openai("a", "b").encode()))
    result = ingested(tmp_path / "home", path, form=form)
    assert (counts(result), result.files[0].source) == ((2, 2, 0, 0), "openai")
    rows = lake(tmp_path / "home")
    assert rows.select("request_id", "prompt_tokens", "output_tokens", "status").rows() == [
        ("a", 100, 20, "ok"), ("b", 100, 20, "ok"),
    ]  # fmt: skip
    assert "SECRET" not in str(rows.to_dicts())


@pytest.mark.parametrize("form", ["anthropic", "auto"])
def test_events_of_a_message(tmp_path, form):
    path = tmp_path / "capture.txt"
    path.write_text(anthropic(ts="2026-03-01T10:00:00Z"))
    result = ingested(tmp_path / "home", path, form=form)
    assert (counts(result), result.files[0].source) == ((1, 1, 0, 0), "anthropic")
    assert lake(tmp_path / "home").select("prompt_tokens", "output_tokens").row(0) == (25, 15)


def test_a_capture_without_any_time_arrives_at_the_origin(tmp_path):
    path = tmp_path / "capture.txt"
    path.write_text(anthropic())
    ingested(tmp_path / "home", path, form="auto", origin="2026-03-01T10:00:00Z")
    row = lake(tmp_path / "home").row(0, named=True)
    assert (row["arrived_at"].hour, "assumed_arrival" in row["flags"]) == (10, True)


def test_an_unfinished_event_is_left_and_a_damaged_one_counted(tmp_path):
    path = tmp_path / "capture.sse"
    path.write_text(": ping\n" + openai("a") + 'data: {"id": \n\n' + 'data: {"id": "b", "obj')
    result = ingested(tmp_path / "home", path, form="openai")
    assert counts(result) == (2, 1, 0, 1)
    assert rejects(tmp_path / "home")["reason"].to_list() == ["not JSON"]
    path.write_text(openai("a"))
    assert ingested(tmp_path / "home", path, form="auto").total("rejected") == 0
