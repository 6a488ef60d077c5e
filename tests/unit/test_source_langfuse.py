"""Langfuse exports: buckets, units, types, upserts, nesting, both spellings, CSV, traces, and what is kept out."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ingesting import counts, ingested, lake
from spans import kept, with_rest

from flows.reading.rows import Reading, read_rows
from transforms.batches import Batch, Head, Parsed
from transforms.finish import finish
from transforms.fleet import Source
from transforms.sources import langfuse

SOURCE = Source("langfuse", "x", **langfuse.DEFAULTS)
CACHED_INSIDE = "cached_tokens_inside"


def observation(number: int, second: float = 0.0, took_s: float = 2.0, **more: Any) -> dict[str, Any]:
    stamp = "2026-03-01T10:00:{:06.3f}Z"
    return {
        "id": f"o{number}", "type": "GENERATION", "traceId": "t", "startTime": stamp.format(second),
        "endTime": stamp.format(second + took_s), "model": "m", "level": "DEFAULT",
        "usageDetails": {"input": 100, "output": 10, "total": 110}, **more,
    }  # fmt: skip


def parse(*records: Any, source: Source = SOURCE, carry: dict[str, Any] | None = None) -> Parsed:
    lines = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    held: dict[str, Any] = {} if carry is None else carry
    parsed = langfuse.canonicalise(Batch("x.jsonl", lines, list(range(len(lines))), held), source)
    return parsed if carry is not None else with_rest(langfuse, parsed, held, source)


def rows_of(*records: Any, source: Source = SOURCE) -> list[dict[str, Any]]:
    return finish(parse(*records, source=source).rows, "langfuse", "x").sort("arrived_at", "request_id").to_dicts()


def usage(details: dict[str, Any], source: Source = SOURCE) -> tuple[Any, ...]:
    (row,) = rows_of(observation(1, usageDetails=details), source=source)
    names = ("prompt_tokens", "cached_prompt_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")
    return (*(row[name] for name in names), row["flags"])


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"input": 191, "input_cached_tokens": 2304, "output": 291, "total": 2786}, (2495, 2304, None, 291, None, [])),
        (
            {"input": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output": 7},
            (100, 90, 5, 7, None, []),
        ),
        ({"input": 5, "input_cache_creation": 8, "output": 1, "total": 14}, (13, None, 8, 1, None, [])),
        # Vercel's and LangChain's reasoning is a bucket of its own, OpenInference's a breakdown of the completion
        ({"input": 179, "output": 35, "output_reasoning": 64, "total": 278}, (179, None, None, 99, 64, [])),
        ({"input": 6, "output": 9, "completion_details.reasoning": 4, "total": 15}, (6, None, None, 9, 4, [])),
        ({"input": 13, "prompt_details.cache_read": 8, "output": 81, "total": 94}, (13, 8, None, 81, None, [])),
        ({"input": 10, "input_audio": 5, "output": 3, "output_audio": 4, "total": 22}, (15, None, None, 7, None, [])),
        ({"input": 5, "output": 845, "total": 2023}, (5, None, None, 845, None, ["usage_total_mismatch"])),
        ({"input": 9, "input_cache_read": 6, "output": 1, "total": 10}, (15, 6, None, 1, None, [CACHED_INSIDE])),
        ({"prompt_tokens": 3, "completion_tokens": 4}, (3, None, None, 4, None, [])),
        ({"input": "12", "output": 3.0}, (12, None, None, 3, None, [])),
        ({}, (None, None, None, None, None, ["usage_missing"])),
        ({"input": 0, "output": 0, "total": 0}, (None, None, None, None, None, ["usage_missing"])),
    ],
)  # fmt: skip
def test_usage_buckets(details: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert usage(details) == expected


def test_settings_say_that_buckets_overlap() -> None:
    inside = Source("langfuse", "x", cached_tokens="inside", reasoning_tokens="inside")
    details = {"input": 100, "input_cache_read": 60, "output": 10, "output_reasoning": 4, "total": 110}
    assert usage(details, inside) == (100, 60, None, 10, 4, [])
    assert usage({**details, "total": 174}, inside)[-1] == ["cached_tokens_outside", "reasoning_tokens_outside"]


def test_older_exports_have_a_usage_object_or_sums_only() -> None:
    older = {"usageDetails": None, "usage": {"unit": "TOKENS", "input": 7, "output": 2, "total": 9, "inputCost": 0.1}}
    letters = {"usageDetails": None, "usage": {"unit": "CHARACTERS", "input": 7, "output": 2}}
    sums = {"usageDetails": {}, "inputUsage": 8, "outputUsage": 3, "totalUsage": 11}
    zeros = {"usageDetails": {}, "inputUsage": 0, "outputUsage": 0, "totalUsage": 0}
    rows = rows_of(*(observation(n, n, **more) for n, more in enumerate((older, letters, sums, zeros))))
    assert [(r["prompt_tokens"], r["output_tokens"]) for r in rows] == [(7, 2), (None, None), (8, 3), (None, None)]


def test_a_count_that_is_none_rejects_the_record() -> None:
    parsed = parse(observation(1, usageDetails={"input": True}), observation(2, usageDetails={"input": "many"}))
    assert [r.reason for r in parsed.rejects] == ["not a number"] * 2


def test_latency_is_computed_and_its_unit_told() -> None:
    rows = rows_of(
        observation(1, 0, latency=2.0, timeToFirstToken=0.4),
        observation(2, 1, latency=2000, timeToFirstToken=400),
        observation(3, 2, latency=77, timeToFirstToken=0.4),
        observation(4, 3, timeToFirstToken=0.4),
    )
    assert [r["e2e_s"] for r in rows] == [2.0] * 4
    assert [r["ttft_s"] for r in rows] == [0.4, 0.4, None, None]
    assert [r["flags"] for r in rows] == [[], ["latency_unit_ms"], ["latency_disagrees"], []]


def test_a_first_token_at_the_end_is_none_but_of_one_token() -> None:
    end = "2026-03-01T10:00:02.000Z"
    rows = rows_of(
        observation(1, completionStartTime=end),
        observation(2, completionStartTime=end, usageDetails={"input": 5, "output": 1}),
        observation(3, completionStartTime="2026-03-01T10:00:00.250Z"),
    )
    assert [r["ttft_s"] for r in rows] == [None, 2.0, 0.25]


def test_only_generations_and_embeddings_are_requests() -> None:
    types = ("SPAN", "EVENT", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "GUARDRAIL", "SOMETHING_NEW")
    parsed = parse(*(observation(n, type=kind) for n, kind in enumerate(types)))
    assert (len(parsed.rows), parsed.ignored) == (0, len(types))
    rows = rows_of(observation(1), observation(2, 1, type="EMBEDDING", usageDetails={"input": 5}))
    assert [r["operation"] for r in rows] == ["chat", "embedding"]


def test_a_generation_around_a_generation_is_not_counted_twice() -> None:
    inner = observation(2, 0.1, 1.8, parentObservationId="o1", sessionId="s")
    assert [r["request_id"] for r in rows_of(observation(1), inner)] == ["o2"]


def test_errors() -> None:
    messages = ("", "RateLimitError: slow down", "Request timeout after 30 s", "CancelledError")
    rows = rows_of(*(observation(n, n, level="ERROR", statusMessage=m) for n, m in enumerate(messages)))
    assert [r["status"] for r in rows] == ["error", "rejected", "timeout", "aborted"]
    assert rows_of(observation(1, level="WARNING", statusMessage="timeout"))[0]["status"] == "ok"


@pytest.mark.parametrize(
    ("output", "asked"),
    [
        ({"role": "assistant", "tool_calls": [{"id": "1"}, {"id": "2"}]}, 2),
        ({"content": [{"type": "text"}, {"type": "tool_use"}]}, 1),
        ({"choices": [{"message": {"tool_calls": [{"id": "1"}]}}]}, 1),
        ({"output": [{"type": "function_call"}, {"type": "reasoning"}]}, 1),
        ([{"parts": [{"type": "tool_call"}]}], 1),
        ({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]}, 1),
        ({"content": "plain"}, 0),
        ("text", None),
        (None, None),
    ],
)
def test_tools_asked_for(output: Any, asked: int | None) -> None:
    assert rows_of(observation(1, output=output))[0]["tool_calls"] == asked
    assert rows_of(observation(1, output=json.dumps(output)))[0]["tool_calls"] == asked


def test_tools_the_export_lists() -> None:
    assert rows_of(observation(1, toolCallNames='["a","b"]', output=None))[0]["tool_calls"] == 2
    assert rows_of(observation(1, toolCalls=[{"id": "1"}]))[0]["tool_calls"] == 1


def test_tools_give_waits() -> None:
    rows = rows_of(
        observation(1, 0, 2),
        observation(2, 2, 1, type="TOOL"),
        observation(3, 2, 4, type="TOOL"),
        observation(4, 6, 2),
    )
    assert [r["logged_tool_wait_s"] for r in rows] == [None, 4.0]
    assert (rows[0]["tool_calls"], rows[1]["tool_results"]) == (2, 2)


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": {"attributes": {"gen_ai.response.finish_reasons": '["length"]'}}},
        {"metadata": '{"finish_reason": "length"}'},
        {"modelParameters": {"finishReason": "length"}},
        {"output": {"choices": [{"finish_reason": "length"}]}},
        {"output": '[{"finish_reason": "length"}]'},
        {"output": {"stop_reason": "max_tokens"}},
    ],
)
def test_finish_reasons(more: dict[str, Any]) -> None:
    assert rows_of(observation(1, **more))[0]["status"] == "length"


def test_sessions_tenants_and_limits() -> None:
    (row,) = rows_of(observation(1, sessionId="s", userId="u", modelParameters={"max_tokens": "64", "n": 1}))
    assert (row["session_id"], row["tenant"], row["requested_output_tokens"]) == ("s", "u", 64)
    assert rows_of(observation(1, modelParameters='{"max_tokens": -1}'))[0]["requested_output_tokens"] is None
    assert rows_of(observation(1))[0]["session_id"] == "t"
    shared = rows_of(observation(1), observation(2, 3, type="SPAN", sessionId="s"))
    assert shared[0]["session_id"] == "s"


SNAKE = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time", "usageDetails": "usage_details",
         "sessionId": "session_id", "updatedAt": "updated_at", "model": "provided_model_name"}  # fmt: skip


def test_snake_case_and_naive_stamps_are_utc() -> None:
    record = observation(1, sessionId="s", usageDetails={"input": 3, "input_cached_tokens": 4, "output": 5})
    (camel,) = rows_of(record)
    snake = {SNAKE.get(key, key): value for key, value in record.items()}
    for name in ("start_time", "end_time"):
        snake[name] = snake[name].replace("T", " ").removesuffix("Z")
    (row,) = rows_of(snake)
    assert row == camel
    assert row["arrived_at"] == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_traces_and_pages_of_the_api_hold_observations() -> None:
    trace = {"id": "t", "sessionId": "s", "userId": "u"}
    both = [observation(1), observation(2, type="SPAN"), 7]
    for record in ({"trace": trace, "observations": both}, {**trace, "observations": both}):
        (row,) = rows_of(record)
        assert (row["session_id"], row["tenant"]) == ("s", "u")
    assert len(rows_of({"data": both, "meta": {"page": 1}})) == 1
    empty = parse({"trace": trace, "observations": []})
    assert (len(empty.rows), empty.ignored, empty.rejects) == (0, 1, [])


def test_a_row_of_the_traces_table_says_what_is_missing() -> None:
    parsed = parse({"id": "t", "timestamp": "2026-03-01T10:00:00Z", "name": "n", "latency": 2})
    assert [r.reason for r in parsed.rejects] == ["a trace without its observations"]
    assert [r.reason for r in parse({"id": "o", "type": "GENERATION"}).rejects] == ["no arrival time"]


def test_a_re_export_replaces_and_an_older_one_does_not(tmp_path: Path) -> None:
    first = observation(1, usageDetails={}, endTime=None, updatedAt="2026-03-01T10:00:01.000Z")
    later = observation(1, updatedAt="2026-03-01T10:00:01.500Z")
    for order in ((first, later), (later, first)):
        assert [r["output_tokens"] for r in rows_of(*order)] == [10]
    for name, record in (("b.jsonl", later), ("a.jsonl", first)):
        (tmp_path / name).write_text(json.dumps(record) + "\n")
        result = ingested(tmp_path / "home", tmp_path / name, form="langfuse")
    assert counts(result) == (1, 0, 1, 0)
    assert lake(tmp_path / "home")["output_tokens"].to_list() == [10]


def test_a_smaller_correction_replaces_too(tmp_path: Path) -> None:
    for name, output, second in (("a.jsonl", 500, 1), ("b.jsonl", 10, 2)):
        record = observation(1, usageDetails={"input": 1, "output": output}, updatedAt=f"2026-03-01T10:00:0{second}Z")
        (tmp_path / name).write_text(json.dumps(record) + "\n")
        ingested(tmp_path / "home", tmp_path / name, form="langfuse")
    assert lake(tmp_path / "home")["output_tokens"].to_list() == [10]


def test_a_csv_export(tmp_path: Path) -> None:
    records = [
        observation(1, sessionId="s", input='say "hi",\nplease', updatedAt="2026-03-01T10:00:03Z"),
        observation(2, 3, type="SPAN", sessionId="s", input=None),
    ]
    text = io.StringIO()
    names = [*records[0]]
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow(names)
    for record in records:
        cells = (record.get(name) for name in names)
        writer.writerow("" if c is None else json.dumps(c) if isinstance(c, dict) else c for c in cells)
    path = tmp_path / "export.csv"
    path.write_text(text.getvalue())
    for form in ("langfuse", "auto"):
        result = ingested(tmp_path / form, path, form=form)
        assert counts(result) == (1, 1, 0, 0)
        row = lake(tmp_path / form).row(0, named=True)
        assert (row["source"], row["prompt_tokens"], row["session_id"], row["e2e_s"]) == ("langfuse", 100, "s", 2.0)


def test_however_observations_are_batched_the_same_rows_stay() -> None:
    records = [
        observation(1, 0, 2, name="agent", type="AGENT"),
        *(observation(10 + n, 3 * n, 2, parentObservationId="o1") for n in range(6)),
        *(observation(20 + n, 3 * n + 2, 1, type="TOOL", parentObservationId="o1") for n in range(6)),
        observation(30, 19, 2, parentObservationId="o31"),
        observation(31, 19, 3),
    ]
    whole = kept([parse(*records).rows], "langfuse").drop("precedence", "row", "source_position")
    for seed in range(20):
        draw = random.Random(seed)
        order = draw.sample(records, len(records))
        carry: dict[str, Any] = {}
        frames = [parse(record, carry=carry).rows for record in order]
        rows = kept([*frames, langfuse.rest(carry, SOURCE).rows], "langfuse")
        rows = rows.drop("precedence", "row", "source_position")
        assert rows.equals(whole)


def test_no_text_of_an_observation_reaches_a_row() -> None:
    record = observation(
        1, input="SECRET", output={"content": "SECRET", "finish_reason": "SECRET tale " * 9}, statusMessage="SECRET",
        metadata={"attributes": {"input.value": "SECRET"}, "x": "SECRET"}, level="ERROR", name="SECRET",
        modelParameters={"instructions": "SECRET"},
    )  # fmt: skip
    assert "SECRET" not in json.dumps(rows_of(record), default=str)


def test_recognise_is_narrow() -> None:
    assert langfuse.recognise(Head("a", [observation(1)]))
    assert langfuse.recognise(Head("a", [{"trace": {}, "observations": [observation(1)]}]))
    assert langfuse.recognise(Head("a", columns=["id", "type", "traceId", "startTime", "level"]))
    assert langfuse.recognise(Head("a", [{"type": "GENERATION"}, {"type": "user", "startTime": 1}])) is None
    assert langfuse.recognise(Head("a", columns=["type", "startTime"])) is None


EXPORTS = {
    "autogen-2025-06-06": [(41, 3)],
    "claude-agent-2025-12-22": [(19, 29), (5, 53), (5, 56), (5, 94)],
    "csharp-agent-with-gemini-2026-03-09": [(2546, 47), (3004, 167), (2497, 200)],
    "google-gemini-2025-08-01": [(6, 2055)],
    "langgraph-js-2025-10-30": [(142, 24), (179, 99)],
    "llamaindex-2025-06-05": [(13, 81)],
    "openai-agents-2025-09-30": [(55, 15), (85, 29)],
    "pydantic-ai-tools-2025-06-06": [(31, 96)],
    "pydantic-ai-with-gemini-2025-12-24": [(40, 159)],
    "vertex-ai-2025-08-01": [(5, 845)],
}


def read(path: Path) -> Reading:
    return read_rows(path, Source("langfuse", str(path)))


@pytest.mark.shared
@pytest.mark.parametrize("name", EXPORTS)
def test_real_exports(shared_dir: Path, name: str) -> None:
    reading = read(shared_dir / "traces/langfuse" / f"{name}.trace.json")
    assert reading.rows.select("prompt_tokens", "output_tokens").rows() == EXPORTS[name]
    assert not reading.rejects
    assert reading.rows["e2e_s"].null_count() == 0
    assert reading.rows["session_id"].n_unique() == 1


@pytest.mark.shared
def test_real_exports_tell_of_tools_and_sessions(shared_dir: Path) -> None:
    folder = shared_dir / "traces/langfuse"
    gemini = read(folder / "csharp-agent-with-gemini-2026-03-09.trace.json").rows
    assert gemini["session_id"][0] == "9714061f-20c0-4d98-9220-1dc7df15c3c2"
    assert gemini["logged_tool_wait_s"].to_list() == [None, 2.359, None]
    vertex = read(folder / "vertex-ai-2025-08-01.trace.json").rows
    assert (vertex["model"][0], vertex["flags"][0].to_list()) == ("gemini-2.5-flash", ["usage_total_mismatch"])
    assert read(folder / "google-gemini-2025-08-01.trace.json").rows["reasoning_tokens"].to_list() == [1104]
    assert read(folder / "langgraph-js-2025-10-30.trace.json").rows["tool_calls"].to_list() == [1, 0]
    assert read(folder / "openai-agents-2025-09-30.trace.json").rows["agent_id"].to_list() == ["Hello world"] * 2


def quoted(rows: list[list[str]]) -> str:
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)


def test_a_csv_that_grows_is_read_to_its_last_whole_record(tmp_path: Path) -> None:
    header = ["id", "type", "traceId", "startTime", "endTime", "level", "input", "usageDetails"]
    cells = [[f"o{n}", "GENERATION", "t", f"2026-03-01T10:00:0{n}Z", f"2026-03-01T10:00:0{n}.5Z", "DEFAULT",
              'a "b",\n\n\u2028c' + "x" * 200_000, '{"input": 5, "output": 1}'] for n in range(4)]  # fmt: skip
    text = quoted([header, *cells])
    path = tmp_path / "export.csv"
    for size, read in ((len(quoted([header, *cells[:2]])) + 9, 2), (len(text), 4), (len(text), 0)):
        path.write_text(text[:size])
        assert counts(ingested(tmp_path / "home", path, form="langfuse")) == (read, read, 0, 0)
    assert lake(tmp_path / "home")["request_id"].to_list() == ["o0", "o1", "o2", "o3"]
