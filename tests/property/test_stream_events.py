"""Streams merge to the same rows whatever the order, interleaving and batching of their events."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches import Batch
from transforms.fleet import Source
from transforms.sources import anthropic, openai, sglang

COUNTS = st.integers(0, 5_000)
STAMPS = st.integers(0, 59)


def read(module: Any, records: list[dict[str, Any]], cuts: list[int], **source: Any) -> pl.DataFrame:
    """Rows of a file of `records` cut into batches at `cuts`, in order of their id, without their place in it."""
    lines = [json.dumps(record).encode() for record in records]
    carry: dict[str, Any] = {}
    where = Source(module.FORMAT, "x", **source)
    bounds = sorted({0, len(lines), *(cut % (len(lines) + 1) for cut in cuts)})
    parts = []
    read_records = 0
    for low, high in pairwise(bounds):
        part = module.canonicalise(Batch("x", lines[low:high], list(range(low, high)), carry), where)
        parts.append(part.rows)
        read_records += len(part.rows) + part.ignored + len(part.rejects)
    parts.append(module.rest(carry, where).rows)
    assert read_records + len(parts[-1]) == len(lines)
    rows = pl.concat([rows for rows in parts if len(rows)], how="diagonal_relaxed")
    kept = rows.drop("source_position").with_columns(pl.col("flags").list.sort())
    return kept.select(sorted(kept.columns)).sort("request_id")


def stamp(second: int) -> str:
    return f"2026-03-01T10:00:{second:02}Z"


@st.composite
def messages(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Events of some Anthropic streams, each naming its message."""
    out = []
    for number in range(draw(st.integers(1, 4))):
        seconds = sorted(draw(st.lists(STAMPS, min_size=4, max_size=4)))
        outputs = sorted(draw(st.lists(COUNTS, min_size=3, max_size=3)))
        name = {"message_id": f"m{number}"}
        usage = {"input_tokens": draw(COUNTS), "cache_read_input_tokens": draw(COUNTS), "output_tokens": outputs[0]}
        blocks = [
            {"type": "content_block_start", "index": n, "content_block": {"type": kind}, **name}
            for n, kind in enumerate(draw(st.lists(st.sampled_from(["text", "tool_use"]), max_size=3)))
        ]
        out.append(
            [
                {"type": "message_start", "ts": stamp(seconds[0]), "message": {"id": f"m{number}", "usage": usage}},
                *blocks,
                {"type": "message_delta", "ts": stamp(seconds[1]), "usage": {"output_tokens": outputs[1]}, **name},
                {"type": "message_delta", "ts": stamp(seconds[2]), "usage": {"output_tokens": outputs[2]},
                 "delta": {"stop_reason": draw(st.sampled_from(["end_turn", "max_tokens", "tool_use"]))}, **name},
                {"type": "message_stop", "ts": stamp(seconds[3]), **name},
            ]
        )  # fmt: skip
    return out


@st.composite
def completions(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Chunks of some OpenAI streams with running usage."""
    out = []
    for number in range(draw(st.integers(1, 4))):
        head = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1_772_359_200 + draw(STAMPS),
                "model": "m"}  # fmt: skip
        outputs = sorted(draw(st.lists(COUNTS, min_size=1, max_size=4)))
        prompt = draw(COUNTS)
        asked = draw(st.integers(0, 3))
        out.append(
            [
                *({**head, "choices": [{"index": 0, "delta": {"tool_calls": [{"index": n}]}}]} for n in range(asked)),
                *({**head, "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}}
                  for output in outputs),
                {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            ]
        )  # fmt: skip
    return out


def woven(draw: st.DrawFn, streams: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The events of all streams in one order that keeps each stream's own."""
    left = [list(stream) for stream in streams]
    out = []
    while left:
        stream = draw(st.sampled_from(left))
        out.append(stream.pop(0))
        left = [stream for stream in left if stream]
    return out


@settings(max_examples=60, deadline=None)
@given(messages(), st.data())
def test_anthropic_events_in_any_order(streams: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    events = [event for stream in streams for event in stream]
    plain = read(anthropic, events, [], cached_tokens="outside")
    assert plain["output_tokens"].to_list() == [stream[-2]["usage"]["output_tokens"] for stream in streams]
    assert plain["prompt_tokens"].to_list() == [
        stream[0]["message"]["usage"]["input_tokens"] + stream[0]["message"]["usage"]["cache_read_input_tokens"]
        for stream in streams
    ]
    shuffled = data.draw(st.permutations(events))
    assert read(anthropic, shuffled, [], cached_tokens="outside").equals(plain)


@settings(max_examples=60, deadline=None)
@given(messages(), st.data(), st.lists(st.integers(0, 40), max_size=4))
def test_anthropic_streams_woven_and_cut_into_batches(
    streams: list[list[dict[str, Any]]], data: st.DataObject, cuts: list[int]
) -> None:
    plain = read(anthropic, [event for stream in streams for event in stream], [], cached_tokens="outside")
    mixed = data.draw(st.composite(lambda draw: woven(draw, streams))())
    assert read(anthropic, mixed, cuts, cached_tokens="outside").equals(plain)


@settings(max_examples=60, deadline=None)
@given(completions(), st.data())
def test_openai_chunks_in_any_order(streams: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    chunks = [chunk for stream in streams for chunk in stream]
    plain = read(openai, chunks, [])
    assert plain["output_tokens"].to_list() == [
        max(chunk["usage"]["completion_tokens"] for chunk in stream if "usage" in chunk) for stream in streams
    ]
    assert read(openai, data.draw(st.permutations(chunks)), []).equals(plain)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STAMPS, STAMPS, st.booleans()), min_size=1, max_size=6), st.data())
def test_sglang_requests_however_their_lines_are_woven(calls: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    streams = []
    for number, (first, last, has_end) in enumerate(calls):
        received = {"timestamp": f"2026-03-01T10:00:{first:02}", "event": "request.received", "rid": f"r{number}"}
        out = {"meta_info": {"prompt_tokens": number, "completion_tokens": 1, "finish_reason": {"type": "stop"}}}
        finished = {
            "timestamp": f"2026-03-01T10:01:{last:02}",
            "event": "request.finished",
            "rid": f"r{number}",
            "out": out,
        }
        streams.append([received, finished] if has_end else [received])
    mixed = data.draw(st.composite(lambda draw: woven(draw, streams))())
    cuts = data.draw(st.lists(st.integers(0, 20), max_size=3))
    rows = read(sglang, mixed, cuts, timezone="UTC", file_order="arrival")
    assert rows["request_id"].to_list() == [f"r{n}" for n in range(len(calls))]
    prompts = rows["prompt_tokens"].to_list() if "prompt_tokens" in rows.columns else [None] * len(calls)
    assert prompts == [n if has_end else None for n, (_, _, has_end) in enumerate(calls)]
    assert [(us // 1_000_000) % 60 for us in rows["arrived_at"]] == [first for first, _, _ in calls]
