"""OpenAI bodies: usage of both APIs, batches, errors, conversations, streams put together again."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from transforms.batches import Batch, Head, Parsed
from transforms.fleet import Source
from transforms.sources import anthropic, openai

AT = 1_772_359_200


def completion(
    identity: str = "chatcmpl-1", created: int | None = AT, reason: str = "stop", **more: Any
) -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    choices = [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": "secret"}}]
    return {"id": identity, "object": "chat.completion", "created": created, "model": "m", "choices": choices,
            "usage": usage} | more  # fmt: skip


def response(identity: str, created: int = AT, status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 9,
             "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 59}  # fmt: skip
    return {"id": identity, "object": "response", "created_at": created, "model": "m", "status": status,
            "output": [{"type": "message"}], "usage": usage} | more  # fmt: skip


def chunk(identity: str, *choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": identity, "object": "chat.completion.chunk", "created": AT, "model": "m",
            "choices": list(choices)} | more  # fmt: skip


def parse(*records: dict[str, Any], **settings: Any) -> Parsed:
    """All that the format gives for one file of these records: its batch and its rest."""
    lines = [json.dumps(record).encode() for record in records]
    carry: dict[str, Any] = {}
    source = Source("openai", "x", **settings)
    one = openai.canonicalise(Batch("x.jsonl", lines, list(range(len(lines))), carry), source)
    rest = openai.rest(carry, source)
    rows = pl.concat([part for part in (one.rows, rest.rows) if len(part)] or [one.rows], how="diagonal_relaxed")
    assert len(rows) + len(one.rejects) + one.ignored == len(lines)
    return Parsed(rows, one.rejects, one.ignored)


def test_a_completion() -> None:
    row = parse(completion()).rows.row(0, named=True)
    assert (row["request_id"], row["model"], row["status"], row["finish_reason"]) == ("chatcmpl-1", "m", "ok", "stop")
    assert (row["prompt_tokens"], row["output_tokens"], row["choices"], row["tool_calls"]) == (100, 20, 1, 0)
    assert row["arrived_at"] == AT * 1_000_000
    assert "secret" not in str(row)


def test_details_are_parts_of_the_counts() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64},
             "completion_tokens_details": {"reasoning_tokens": 12}}  # fmt: skip
    rows = parse(completion(usage=usage), response("resp_1")).rows
    columns = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "reasoning_tokens")
    assert rows.select(columns).rows() == [(100, 64, 20, 12), (50, 30, 9, 4)]


def test_other_names_for_cached_tokens() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    rows = parse(
        completion(usage=usage | {"prompt_cache_hit_tokens": 60}), completion(usage=usage | {"cached_tokens": 0})
    ).rows
    assert rows["cached_prompt_tokens"].to_list() == [60, 0]


def test_reasoning_outside_is_told_by_the_total_and_added_under_the_setting() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115,
             "completion_tokens_details": {"reasoning_tokens": 100}}  # fmt: skip
    doubted = parse(completion(usage=usage)).rows
    assert (doubted["output_tokens"][0], doubted["flags"].to_list()[0]) == (5, ["reasoning_tokens_outside"])
    settled = parse(completion(usage=usage), reasoning_tokens="outside").rows
    assert (settled["output_tokens"][0], settled["flags"].to_list()[0]) == (105, [])


def test_unknown_usage_is_not_zero() -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    records = (completion("a", usage=None), completion("b", usage=zeros))
    missing = parse(*records, zero_usage="missing").rows
    assert missing.select("prompt_tokens", "output_tokens").rows() == [(None, None)] * 2
    assert missing["flags"].to_list() == [["usage_missing"]] * 2
    assert parse(*records).rows["prompt_tokens"].to_list() == [None, 0]


@pytest.mark.parametrize(
    ("word", "status"),
    [("stop", "ok"), ("tool_calls", "ok"), ("length", "length"), ("abort", "aborted"), ("content_filter", "ok")],
)
def test_finish_reasons(word: str, status: str) -> None:
    assert parse(completion(reason=word)).rows["status"].to_list() == [status]


def test_ends_of_a_response_object() -> None:
    rows = parse(
        response("a"),
        response("b", status="incomplete", incomplete_details={"reason": "max_output_tokens"}, max_output_tokens=9),
        response("c", status="failed", error={"code": "server_error", "message": "x"}),
        response("d", status="cancelled"),
        response("e", status="in_progress", usage=None),
    ).rows
    assert rows["status"].to_list() == ["ok", "length", "error", "aborted", "ok"]
    assert rows["requested_output_tokens"].to_list() == [None, 9, None, None, None]
    assert rows["flags"].to_list()[4] == ["output_partial", "usage_missing"]


def test_tool_calls_that_the_client_must_answer() -> None:
    message = {"tool_calls": [{"id": "a"}, {"id": "b"}]}
    output = [{"type": "reasoning"}, {"type": "web_search_call"}, {"type": "function_call"}]
    rows = parse(
        completion(choices=[{"finish_reason": "tool_calls", "message": message}]),
        response("r", output=output),
        completion("c", choices=[{"finish_reason": "stop"}]),
    ).rows
    assert rows["tool_calls"].to_list() == [2, 1, None]


def test_lines_of_a_batch() -> None:
    def line(number: int, code: int, body: Any, error: Any = None) -> dict[str, Any]:
        return {"id": f"batch_req_{number}", "custom_id": f"c{number}", "error": error,
                "response": {"status_code": code, "request_id": "r", "body": body}}  # fmt: skip

    refused = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    expired = {"id": "batch_req_4", "custom_id": "c4", "response": None, "error": {"code": "batch_expired"}}
    rows = parse(line(1, 200, completion()), line(2, 400, refused), line(3, 500, {}), expired).rows
    assert rows["operation"].to_list() == ["batch"] * 4
    assert rows["status"].to_list() == ["ok", "rejected", "error", "error"]
    assert rows["request_id"].to_list() == ["chatcmpl-1", "batch_req_2", "batch_req_3", "batch_req_4"]
    assert rows["prompt_tokens"].to_list() == [100, None, None, None]
    assert rows["arrived_at"].n_unique() == 1
    assert ["assumed_arrival" in flags for flags in rows["flags"]] == [False, True, True, True]


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        ({"type": "rate_limit_exceeded"}, None, "rejected"),
        ({"type": "insufficient_quota"}, 429, "rejected"),
        ({"type": "BadRequestError", "message": "This model's maximum context length is 4096 tokens"}, 400, "rejected"),
        ({"type": "timeout"}, None, "timeout"),
        ({"type": "server_error"}, 500, "error"),
        ("boom", None, "error"),
        (None, 503, "error"),
        (None, 429, "rejected"),
        (None, 200, "ok"),
    ],
)
def test_errors(error: Any, code: int | None, status: str) -> None:
    row = completion(usage=None) | {"error": error} | ({} if code is None else {"http_status": code})
    assert parse(row).rows["status"].to_list() == [status]


def test_embeddings_and_moderations_are_no_chats() -> None:
    embeddings = {"object": "list", "data": [{"object": "embedding", "embedding": [0.1]}], "model": "e",
                  "usage": {"prompt_tokens": 8, "total_tokens": 8}}  # fmt: skip
    moderation = {"id": "modr-1", "model": "o", "results": [{"flagged": False}]}
    rows = parse(embeddings, moderation).rows
    assert rows["operation"].to_list() == ["embedding", "moderation"]
    assert rows["output_tokens"].to_list() == [0, None]


def test_a_conversation_of_responses() -> None:
    rows = parse(
        response("a"),
        response("b", previous_response_id="a"),
        response("c", previous_response_id="b"),
        response("d", conversation={"id": "conv"}),
        completion("x"),
    ).rows
    assert rows["session_id"].to_list() == ["a", "a", "a", "conv", None]


def test_ids_that_a_server_uses_again_are_told_apart_and_repeated_lines_are_not() -> None:
    rows = parse(completion("chatcmpl-7"), completion("chatcmpl-7", created=AT + 9), completion("chatcmpl-7")).rows
    assert rows["request_id"].to_list() == ["chatcmpl-7", f"chatcmpl-7@{(AT + 9) * 1_000_000}", "chatcmpl-7"]


def test_what_a_logger_wrote_beside_a_body_counts_where_created_says_nothing() -> None:
    rows = parse(completion(created=0, ts="2026-03-01T10:00:00Z"), completion("b", created=None)).rows
    assert rows["arrived_at"].to_list() == [AT * 1_000_000] * 2
    assert rows["flags"].to_list() == [[], ["assumed_arrival"]]


def test_bodies_without_any_time_stand_at_the_origin() -> None:
    rows = parse(completion(created=None)).rows
    assert rows["flags"].to_list() == [["assumed_origin", "assumed_arrival"]]
    given = parse(completion(created=None), origin="2026-03-01T10:00:00Z").rows
    assert given["arrived_at"].to_list() == [AT * 1_000_000]


def test_chunks_become_one_row() -> None:
    parsed = parse(
        chunk("s", {"index": 0, "delta": {"role": "assistant"}}),
        chunk("s", {"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a"}]}}),
        chunk("s", {"index": 0, "delta": {"tool_calls": [{"index": 1, "id": "b"}, {"index": 0}]}}),
        chunk("s", {"index": 0, "delta": {}, "finish_reason": "tool_calls"}),
        chunk("s", usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}),
    )
    row = parsed.rows.row(0, named=True)
    assert (len(parsed.rows), parsed.ignored) == (1, 4)
    assert (row["prompt_tokens"], row["output_tokens"], row["tool_calls"]) == (7, 3, 2)
    assert (row["finish_reason"], row["flags"], row["source_position"]) == ("tool_calls", [], 0)


def test_a_stream_that_was_cut_off_is_partial() -> None:
    rows = parse(chunk("s", {"index": 0, "delta": {}}), chunk("", {"index": 0, "delta": {}})).rows
    assert rows["flags"].to_list() == [["output_partial", "usage_missing"]]


def test_events_of_a_response_become_one_row() -> None:
    parsed = parse(
        {"type": "response.created", "response": response("r", status="in_progress", usage=None)},
        {"type": "response.output_text.delta", "delta": "x"},
        {"type": "response.completed", "response": response("r")},
        {"type": "response.created", "response": response("q", status="in_progress", usage=None)},
    )
    assert parsed.rows.sort("request_id").select("request_id", "output_tokens").rows() == [("q", None), ("r", 9)]
    assert "output_partial" in parsed.rows.filter(request_id="q")["flags"][0]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"hello": 1}, "not a response of this API"),
        ({"type": "message", "id": "m", "usage": {"input_tokens": 3}}, "not a response of this API"),
        ({"object": "bucket", "start_time": 1, "results": []}, "totals of the usage API, not requests"),
        (completion(usage={"prompt_tokens": True}), "not a number"),
        (completion(created="soon"), "not a time"),
        (chunk("s", usage={"prompt_tokens": 1.5}), "not a whole number"),
    ],
)
def test_what_is_no_answer_is_rejected(record: dict[str, Any], reason: str) -> None:
    parsed = parse(record, completion())
    assert [reject.reason for reject in parsed.rejects] == [reason]
    assert len(parsed.rows) == 1


@pytest.mark.parametrize("odd", [[], {}, "x", 7, True, None, [[]], [{}], {"a": 1}])
@pytest.mark.parametrize(
    "name", ["choices", "usage", "error", "object", "type", "status", "output", "id", "model", "data"]
)
def test_fields_of_any_kind_are_survived(name: str, odd: Any) -> None:
    for record in (
        completion(),
        response("r"),
        chunk("c", {"index": 0}),
        {"type": "response.completed", "response": {}},
    ):
        parse(record | {name: odd}, chunk("c", {"index": odd}))


def test_the_two_apis_are_told_apart() -> None:
    body = {"id": "msg_1", "type": "message", "model": "c", "stop_reason": "end_turn", "usage": {"input_tokens": 5}}
    ours = [completion(), response("r"), chunk("c"), {"id": "c", "created": 1, "model": "m", "usage": None},
            {"custom_id": "a", "response": {}}]  # fmt: skip
    theirs = [body, {"custom_id": "a", "result": {}}, {"type": "message_start", "message": {"id": "m"}}]
    for records, yes, no in ((ours, openai, anthropic), (theirs, anthropic, openai)):
        for record in records:
            head = Head("x", [record])
            assert yes.recognise(head)
            assert no.recognise(head) is None
