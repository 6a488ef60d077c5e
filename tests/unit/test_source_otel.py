"""OTLP JSON: values, ids, names old and new, engine spans, leaf rule, tool waits, settings, and what is kept out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from ingesting import counts, ingested, lake
from spans import SOURCE, START_NS, TRACE, agent, chat, in_batches, kept, line, parse, rows_of, span, tool

from transforms.batches import Head
from transforms.fields.otlp import any_value, hex_id, is_error_code, span_kind
from transforms.finish import finish
from transforms.fleet import Source
from transforms.sources import otel
from transforms.sources._traces import Window


def one(*spans: dict[str, Any], **settings: Any) -> dict[str, Any]:
    (row,) = rows_of(*spans, source=Source("otel", "x", **{"zero_usage": "missing", **settings}))
    return row


def test_values_of_every_kind() -> None:
    assert any_value({"stringValue": "a"}) == "a"
    assert any_value({"intValue": "9223372036854775807"}) == 2**63 - 1
    assert any_value({"intValue": 7}) == 7
    assert any_value({"doubleValue": 0.5}) == 0.5
    assert any_value({"boolValue": False}) is False
    assert any_value({"string_value": "a"}) == "a"
    assert any_value({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "b"}]}}) == [1, "b"]
    assert any_value({"arrayValue": {}}) == []
    assert any_value({"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": True}}]}}) == {"k": True}
    assert any_value({"bytesValue": "AAEC"}) is None
    assert any_value({}) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (TRACE.upper(), TRACE),
        ("W47/+AOP7t0mniabYzgPPA==", "5b8efff8038feedd269e269b63380f3c"),  # protobuf's own JSON mapping
        ("0" * 32, None),
        ("", None),
        (7, None),
        ("not-hex", "not-hex"),
    ],
)
def test_ids_in_any_writing(written: Any, read: str | None) -> None:
    assert hex_id(written, 16) == read


def test_enums_as_number_or_name() -> None:
    assert [span_kind(k) for k in (3, "3", "SPAN_KIND_CLIENT", "Client", None, 99)] == (
        ["client"] * 4 + ["unspecified"] * 2
    )
    assert [is_error_code(c) for c in (2, "2", "STATUS_CODE_ERROR", "Error", 1, "STATUS_CODE_OK", None)] == (
        [True] * 4 + [False] * 3
    )


@pytest.mark.parametrize("tokens", ["14", 14, 14.0, {"stringValue": "14"}, {"intValue": 14}, {"doubleValue": 14}])
def test_whole_numbers_in_every_writing(tokens: Any) -> None:
    assert one(chat("1", gen_ai__usage__input_tokens=tokens))["prompt_tokens"] == 14


@pytest.mark.parametrize("tokens", [{"boolValue": True}, {"stringValue": "many"}, {"doubleValue": 1.5}])
def test_what_is_no_whole_number_is_rejected_and_the_next_span_is_read(tokens: Any) -> None:
    parsed = parse(line(chat("1", gen_ai__usage__input_tokens=tokens), chat("2")))
    assert len(parsed.rows) == 1
    assert len(parsed.rejects) == 1


NAMES = {
    "new": ("gen_ai__usage__input_tokens", "gen_ai__usage__output_tokens"),
    "old": ("gen_ai__usage__prompt_tokens", "gen_ai__usage__completion_tokens"),
    "openinference": ("llm__token_count__prompt", "llm__token_count__completion"),
    "vercel": ("ai__usage__promptTokens", "ai__usage__completionTokens"),
    "vercel 5": ("ai__usage__inputTokens", "ai__usage__outputTokens"),
    "traceloop": ("llm__usage__prompt_tokens", "llm__usage__completion_tokens"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_usage_under_any_name_and_never_added(kind: str) -> None:
    row = one(span("1", **{NAMES[kind][0]: 12, NAMES[kind][1]: 5}, gen_ai__operation__name="chat"))
    assert (row["prompt_tokens"], row["output_tokens"]) == (12, 5)
    every = {name: 12 + place * -7 for names in NAMES.values() for place, name in enumerate(names)}
    row = one(span("1", **every, gen_ai__operation__name="chat"))
    assert (row["prompt_tokens"], row["output_tokens"]) == (12, 5)


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.cache_read_tokens",
        "gen_ai.usage.cached_tokens",  # SGLang
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ],
)
def test_cached_tokens_are_inside_the_prompt(name: str) -> None:
    row = one(chat("1", **{name.replace(".", "__"): 60}))
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["flags"]) == (100, 60, [])


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ],
)
def test_reasoning_tokens_are_inside_the_output(name: str) -> None:
    row = one(chat("1", **{name.replace(".", "__"): 4}))
    assert (row["output_tokens"], row["reasoning_tokens"]) == (10, 4)


def test_settings_say_what_lies_outside() -> None:
    usage = {"gen_ai__usage__cache_read_input_tokens": 500, "gen_ai__usage__cache_write_tokens": 40,
             "gen_ai__usage__reasoning_tokens": 7, "gen_ai__usage__total_tokens": 657}  # fmt: skip
    row = one(chat("1", **usage), cached_tokens="outside", reasoning_tokens="outside")
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["cache_write_tokens"]) == (640, 500, 40)
    assert (row["output_tokens"], row["reasoning_tokens"], row["flags"]) == (17, 7, [])


def test_counts_that_prove_a_setting_wrong_are_flagged() -> None:
    over = one(chat("1", gen_ai__usage__cache_read_input_tokens=500))
    assert set(over["flags"]) == {"cached_clamped", "cached_tokens_outside"}
    read = {"gen_ai__usage__cache_read_input_tokens": 50}
    assert one(chat("1", **read, gen_ai__usage__total_tokens=160))["flags"] == ["cached_tokens_outside"]
    assert one(chat("1", **read, gen_ai__usage__total_tokens=110))["flags"] == []
    inside = one(chat("1", **read, gen_ai__usage__total_tokens=110), cached_tokens="outside")
    assert inside["flags"] == ["cached_tokens_inside"]
    thought = one(chat("1", gen_ai__usage__reasoning_tokens=7, gen_ai__usage__total_tokens=117))
    assert thought["flags"] == ["reasoning_tokens_outside"]
    assert one(chat("1", gen_ai__usage__total_tokens=999))["flags"] == ["usage_total_mismatch"]
    both = one(chat("1", gen_ai__usage__cache_read_input_tokens=500, gen_ai__usage__total_tokens=110))
    assert set(both["flags"]) == {"cached_clamped", "cached_tokens_outside", "usage_total_mismatch"}


def engine(span_id: str, parent: str | None = None, start_s: float = 0.0, end_s: float = 1.0, **more: Any) -> Any:
    attributes = {"gen_ai__usage__prompt_tokens": 100, "gen_ai__usage__completion_tokens": 10,
                  "gen_ai__request__id": "cmpl-1", "gen_ai__latency__time_in_queue": 0.25,
                  "gen_ai__latency__time_to_first_token": 0.5, "gen_ai__latency__e2e": 1.0, **more}  # fmt: skip
    return span(span_id, parent, start_s, end_s, name="llm_request", **attributes)


def test_an_engine_span_has_queue_and_first_token() -> None:
    row = one(engine("1"))
    assert (row["queue_s"], row["ttft_s"], row["e2e_s"], row["model"]) == (0.25, 0.5, 1.0, None)
    sglang = {"rid": "r", "gen_ai__response__model": "m", "gen_ai__usage__cached_tokens": 3}
    row = one(span("1", name="Req 1", gen_ai__latency__e2e=1.0, gen_ai__usage__prompt_tokens=5, **sglang))
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["model"], row["operation"]) == (5, 3, "m", "chat")


def test_an_engine_writes_a_span_for_each_of_n_choices() -> None:
    spans = [engine(str(n), None, 0.0, 1.0 + n, gen_ai__request__n=3) for n in (1, 2, 3)]
    row = one(*spans)
    assert (row["prompt_tokens"], row["output_tokens"], row["choices"], row["e2e_s"]) == (100, 30, 3, 4.0)
    assert row["flags"] == []
    assert one(*spans[:2])["flags"] == ["output_partial"]


def test_client_and_engine_tell_of_one_call() -> None:
    client = chat("1", None, 0.0, 1.4, gen_ai__response__id="cmpl-1", gen_ai__request__model="m", session__id="s",
                  gen_ai__response__finish_reasons=["length"], gen_ai__usage__cache_read_input_tokens=64)  # fmt: skip
    post = span("2", "1", 0.1, 1.3, name="POST")
    served = engine("3", "2", 0.2, 1.2)
    row = one(client, post, served)
    assert (row["queue_s"], row["e2e_s"], row["model"], row["session_id"]) == (0.25, 1.0, "m", "s")
    assert (row["status"], row["cached_prompt_tokens"], row["prompt_tokens"]) == ("length", 64, 100)
    without_link = one(client, engine("3", None, 0.2, 1.2))
    assert {**without_link, "precedence": 0} == {**row, "precedence": 0}
    ids = {row["request_id"], one(client)["request_id"], one(served)["request_id"]}
    assert len(ids) == 1, "apart, in two files, they are the same request"
    assert one(served)["precedence"] < one(client)["precedence"] < row["precedence"]


def test_an_answer_from_a_cache_repeats_an_id_and_is_a_request_all_the_same() -> None:
    first, again = chat("1", gen_ai__response__id="r"), chat("2", None, 5.0, 5.001, gen_ai__response__id="r")
    assert len({row["request_id"] for row in rows_of(first, again)}) == 2
    elsewhere = chat("2", None, 5.0, 5.001, trace="a" * 32, gen_ai__response__id="r")
    assert len({row["request_id"] for row in rows_of(first, elsewhere)}) == 2


@pytest.mark.parametrize(
    "marks",
    [
        {"gen_ai__operation__name": "invoke_agent"},
        {"gen_ai__operation__name": "invoke_workflow"},
        {"openinference__span__kind": "CHAIN"},
        {"openinference__span__kind": "AGENT"},
        {"traceloop__span__kind": "workflow"},
        {"langfuse__observation__type": "agent"},
        {"ai__operationId": "ai.generateText"},
        {"gen_ai__agent__name": "a"},
    ],
)
def test_a_sum_is_no_request_even_without_its_children(marks: dict[str, str]) -> None:
    usage = {"gen_ai__usage__input_tokens": 300, "gen_ai__usage__output_tokens": 30}
    assert rows_of(span("1", **marks, **usage)) == []


@pytest.mark.parametrize(
    ("marks", "operation"),
    [
        ({"gen_ai__operation__name": "text_completion"}, "chat"),
        ({"gen_ai__operation__name": "generate_content"}, "chat"),
        ({"gen_ai__operation__name": "embeddings"}, "embedding"),
        ({"openinference__span__kind": "LLM"}, "chat"),
        ({"openinference__span__kind": "EMBEDDING"}, "embedding"),
        ({"openinference__span__kind": "RERANKER"}, "rerank"),
        ({"traceloop__span__kind": "task", "llm__request__type": "chat"}, "chat"),
        ({"llm__request__type": "aembedding"}, "embedding"),
        ({"ai__operationId": "ai.streamText.doStream"}, "chat"),
        ({"ai__operationId": "ai.embedMany.doEmbed"}, "embedding"),
        ({"gen_ai__request__model": "m"}, "chat"),
    ],
)
def test_kinds_of_calls(marks: dict[str, str], operation: str) -> None:
    assert one(span("1", **marks, gen_ai__usage__input_tokens=5))["operation"] == operation


def test_spans_that_are_no_calls() -> None:
    others = [
        span("1", name="POST /v1/chat/completions"),
        span("2", name="chat room opened"),
        span("3", name="llm_request"),
        span("4", gen_ai__operation__name="retrieval"),
        span("5", openinference__span__kind="RETRIEVER"),
        tool("6", gen_ai__usage__input_tokens=5),
        span("7", ai__operationId="ai.toolCall"),
        span("8", mcp__method__name="tools/call"),
    ]
    parsed = parse(line(*others))
    assert (len(parsed.rows), parsed.ignored, parsed.rejects) == (0, len(others), [])


def test_the_leaf_rule_with_an_unmarked_sum() -> None:
    usage = {"gen_ai__usage__input_tokens": 300, "gen_ai__usage__output_tokens": 30, "gen_ai__request__model": "m"}
    rows = rows_of(span("1", **usage), chat("2", "1"), chat("3", "1", 2.0, 3.0))
    assert [row["prompt_tokens"] for row in rows] == [100, 100]
    assert one(span("1", **usage))["prompt_tokens"] == 300


def test_a_call_logged_by_framework_and_sdk_is_one() -> None:
    outer = chat("1", gen_ai__conversation__id="c")
    assert one(outer, chat("2", "1", 0.1, 0.9))["session_id"] == "c"
    stream = span("2", "1", 0.1, 0.9, gen_ai__operation__name="chat")
    assert one(outer, stream)["prompt_tokens"] == 100
    assert one(span("1", gen_ai__operation__name="chat"), stream)["prompt_tokens"] is None


def test_a_failed_child_of_a_sum_is_a_failed_request() -> None:
    sum_of = span("1", gen_ai__usage__input_tokens=100, gen_ai__request__model="m")
    failed = span("3", "1", 2.0, 3.0, error=True, gen_ai__operation__name="chat", error__type="timeout")
    assert [row["status"] for row in rows_of(sum_of, chat("2", "1"), failed)] == ["ok", "timeout"]


def test_a_tool_gives_the_wait_of_the_next_call() -> None:
    rows = rows_of(agent("1"), chat("2", "1", 0, 2), tool("3", "1", 2.1, 3.5), chat("4", "1", 3.6, 6))
    assert [row["logged_tool_wait_s"] for row in rows] == [None, pytest.approx(1.4)]
    assert [row["tool_calls"] for row in rows] == [1, None]
    assert [row["tool_results"] for row in rows] == [None, 1]


def test_the_wait_of_parallel_tools_ends_with_the_last() -> None:
    tools = [tool("3", "1", 2.0, 2.5), tool("4", "1", 2.0, 5.0), tool("5", "1", 2.1, 3.0)]
    rows = rows_of(agent("1"), chat("2", "1", 0, 2), *tools, chat("6", "1", 5.0, 6.0))
    assert rows[1]["logged_tool_wait_s"] == 3.0
    assert (rows[0]["tool_calls"], rows[1]["tool_results"]) == (3, 3)


def test_the_wait_of_a_tool_begun_during_the_answer_starts_at_its_end() -> None:
    rows = rows_of(agent("1"), chat("2", "1", 0, 2), tool("3", "1", 1.5, 3.5), chat("4", "1", 3.5, 6))
    assert rows[1]["logged_tool_wait_s"] == 1.5


def test_a_tool_nested_in_a_tool_counts_once() -> None:
    rows = rows_of(
        agent("1"), chat("2", "1", 0, 2), tool("3", "1", 2, 4), span("4", "3", 2, 4, mcp__method__name="tools/call"),
        chat("5", "1", 4, 6),
    )  # fmt: skip
    assert (rows[0]["tool_calls"], rows[1]["logged_tool_wait_s"]) == (1, 2.0)


def test_a_tool_that_runs_on_or_was_done_before_the_answer_held_nothing_up() -> None:
    background = rows_of(agent("1"), chat("2", "1", 0, 2), tool("3", "1", 2, 8), chat("4", "1", 3, 5))
    assert [row["logged_tool_wait_s"] for row in background] == [None, None]
    early = rows_of(agent("1"), chat("2", "1", 0, 5), tool("3", "1", 1, 2), chat("4", "1", 6, 7))
    assert [row["logged_tool_wait_s"] for row in early] == [None, None]
    assert early[0]["tool_calls"] == 1


def test_sub_agents_have_a_lane_of_their_own() -> None:
    rows = rows_of(
        agent("1", None, 0, 9, gen_ai__agent__name="main"),
        chat("2", "1", 0, 1),
        tool("3", "1", 1, 6),
        agent("4", "3", 1, 6, gen_ai__agent__name="helper"),
        chat("5", "4", 1, 2),
        tool("6", "4", 2, 4),
        chat("7", "4", 4, 6),
        chat("8", "1", 6, 9),
    )
    assert [row["agent_id"] for row in rows] == [None, "helper", "helper", None]
    assert [row["logged_tool_wait_s"] for row in rows] == [None, None, 2.0, 5.0]


def test_sessions_and_tenants() -> None:
    assert one(chat("1"))["session_id"] == TRACE
    assert one(chat("1", session__id="s", gen_ai__conversation__id="c"))["session_id"] == "c"
    assert one(agent("1", session__id="s"), chat("2", "1"))["session_id"] == "s"
    assert one(span("9", session__id="s"), chat("2", "unseen"))["session_id"] == "s"
    two = [span("8", session__id="s"), span("9", session__id="t"), chat("2")]
    assert rows_of(*two)[0]["session_id"] == TRACE
    parsed = parse(line(chat("1"), resource={"service.namespace": "team", "service.name": "x"}))
    assert parsed.rows["tenant"].to_list() == ["team"]
    assert one(chat("1", user__id="u"))["tenant"] == "u"


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ({"error__type": "timeout"}, "timeout"),
        ({"error__type": "429"}, "rejected"),
        ({"error__type": "openai.RateLimitError"}, "rejected"),
        ({"error__type": "CancelledError"}, "aborted"),
        ({"error__type": "ValueError"}, "error"),
        ({"error__type": "x", "http__response__status_code": 504}, "timeout"),
        ({"gen_ai__response__finish_reasons": ["length"]}, "length"),
        ({"gen_ai__response__finish_reasons": ["stop", "length"]}, "ok"),
        ({"gen_ai__response__finish_reasons": '["max_tokens"]'}, "length"),
        ({"gen_ai__response__finish_reasons": ["FinishReason.MAX_TOKENS"]}, "length"),
        ({"ai__response__finishReason": "tool-calls"}, "ok"),
        ({"gen_ai__response__finish_reasons": ["abort"]}, "aborted"),
    ],
)
def test_status(attributes: dict[str, Any], status: str) -> None:
    assert one(chat("1", **attributes))["status"] == status


def test_an_error_span_without_tokens_has_unknown_tokens() -> None:
    zeros = {"gen_ai__usage__input_tokens": 0, "gen_ai__usage__output_tokens": 0}
    row = one(chat("1", error=True, **zeros))
    assert (row["status"], row["prompt_tokens"], row["output_tokens"]) == ("error", None, None)
    assert row["flags"] == ["usage_missing"]
    assert one(chat("1", **zeros), zero_usage="zero")["prompt_tokens"] == 0
    event = {"events": [{"name": "exception", "timeUnixNano": "1", "attributes": [
        {"key": "exception.type", "value": {"stringValue": "APITimeoutError"}}]}]}  # fmt: skip
    assert one(chat("1", error=True, more=event))["status"] == "timeout"


def test_tools_asked_for() -> None:
    assert one(chat("1", gen_ai__response__finish_reasons=["tool_calls"]))["tool_calls"] == 1
    assert one(chat("1", gen_ai__response__finish_reasons=["stop"]))["tool_calls"] == 0
    assert one(chat("1"))["tool_calls"] is None
    names = {f"llm.output_messages.0.message.tool_calls.{n}.tool_call.function.name": "f" for n in range(3)}
    assert one(chat("1", **names))["tool_calls"] == 3
    parts = [{"role": "assistant", "finish_reason": "tool_call", "parts": [{"type": "tool_call"}, {"type": "text"}]}]
    row = one(chat("1", gen_ai__output__messages=json.dumps(parts)))
    assert (row["tool_calls"], row["finish_reason"]) == (1, "tool_call")


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({"gen_ai__response__time_to_first_chunk": 0.4}, []),
        ({"ai__response__msToFirstChunk": 400}, []),
        ({"langfuse__observation__completion_start_time": '"2026-03-01T10:00:00.400Z"'}, []),
        ({}, ["First Token Stream Event"]),
        ({}, ["gen_ai.content.chunk", "gen_ai.content.chunk"]),
    ],
)
def test_time_to_first_token(attributes: dict[str, Any], events: list[str]) -> None:
    stamps = [{"name": name, "timeUnixNano": str(START_NS + (4 + n) * 10**8)} for n, name in enumerate(events)]
    assert one(chat("1", more={"events": stamps}, **attributes))["ttft_s"] == pytest.approx(0.4)


def test_times_that_cannot_be() -> None:
    late = one(chat("1", gen_ai__latency__time_to_first_token=400.0))
    assert (late["ttft_s"], late["flags"]) == (None, ["clock_skew"])
    backwards = one(chat("1", None, 1.0, 0.0))
    assert (backwards["e2e_s"], backwards["flags"]) == (None, ["clock_skew"])
    open_end = one(chat("1", more={"endTimeUnixNano": "0"}))
    assert open_end["e2e_s"] is None
    parsed = parse(line(chat("1", more={"startTimeUnixNano": "0"}), tool("2", more={"startTimeUnixNano": "x"})))
    assert [r.reason for r in parsed.rejects] == ["no arrival time"]
    assert parsed.ignored == 1


def test_writers_that_do_not_keep_to_the_standard() -> None:
    plain = {"trace_id": TRACE.upper(), "span_id": "AB" * 8, "parent_span_id": "", "name": "chat m", "kind": "CLIENT",
             "start_time_unix_nano": START_NS, "end_time_unix_nano": START_NS + 10**9, "status": "ERROR",
             "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}}  # fmt: skip
    document = {"resource_spans": [{"resource": None, "scope_spans": [{"spans": [plain, 7]}]}]}
    parsed = parse(json.dumps(document).encode())
    assert parsed.rows.select("prompt_tokens", "status").rows() == [(3, "error")]
    assert [r.reason for r in parsed.rejects] == ["not a JSON object"]
    bare = json.dumps({**chat("1"), "type": "otlp_span"}).encode()
    assert len(parse(bare).rows) == 1
    older = json.dumps({"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": [chat("1")]}]}]}).encode()
    assert len(parse(older).rows) == 1
    with_nan = line(chat("1", x=1.5)).replace(b"1.5", b"NaN")
    assert len(parse(with_nan).rows) == 1
    assert len(parse(line(chat("1", x="ab")).replace(b"ab", b"\xff\xfe")).rows) == 1


def test_records_without_spans() -> None:
    parsed = parse(b'{"resourceMetrics":[]}', b'{"resourceSpans":[]}', b'{"a":1}', b"[1]", b"{", b'"x"')
    assert parsed.ignored == 2
    assert [(r.position, r.reason) for r in parsed.rejects] == [
        (2, "no OTLP trace"), (3, "not a JSON object"), (4, "not JSON"), (5, "not a JSON object"),
    ]  # fmt: skip


def test_spans_without_ids_are_rows_of_their_own() -> None:
    nameless = [chat("1", more={"spanId": "", "traceId": ""}) for _ in range(2)]
    rows = rows_of(*nameless)
    assert [row["request_id"] for row in rows] == [None, None]
    assert [row["session_id"] for row in rows] == [None, None]


def test_a_resource_path_is_no_model_name() -> None:
    path = "projects/p-1/locations/l/publishers/google/models/gemini-2.5-flash"
    assert one(chat("1", gen_ai__request__model=path))["model"] == "gemini-2.5-flash"
    served = one(chat("1", gen_ai__request__model="alias", gen_ai__response__model="meta-llama/Llama-3.1-8B-Instruct"))
    assert served["model"] == "meta-llama/Llama-3.1-8B-Instruct"


def test_no_text_of_a_span_reaches_a_row() -> None:
    secret = {
        "gen_ai__input__messages": "SECRET", "gen_ai__prompt__0__content": "SECRET", "input__value": "SECRET",
        "gen_ai__output__messages": '[{"parts":[{"type":"text","content":"SECRET"}],"finish_reason":"stop"}]',
        "llm__invocation_parameters": '{"max_tokens": 5, "system": "SECRET"}', "http__request__header__x": "SECRET",
        "client__address": "SECRET", "gen_ai__response__finish_reasons": ["SECRET and a long story " * 9],
    }  # fmt: skip
    spans = [
        chat("1", more={"status": {"code": 2, "message": "SECRET"}}, **secret),
        tool("2", gen_ai__tool__call__arguments="SECRET", gen_ai__tool__call__result="SECRET"),
    ]
    parsed = parse(line(*spans, resource={"host.ip": "SECRET"}), line(chat("3", gen_ai__usage__input_tokens="SECRET")))
    assert "SECRET" not in finish(parsed.rows, "otel", "x").write_json()
    assert "SECRET" not in str(parsed.rejects)
    assert parsed.rows["requested_output_tokens"].to_list() == [5]


def test_a_sum_that_came_lines_before_its_children_is_none() -> None:
    sum_of = span("1", gen_ai__usage__input_tokens=200, gen_ai__request__model="m")
    frames, counted = in_batches([line(sum_of), line(chat("2", "1")), line(chat("3", "1", 2, 3))], [1, 1, 1])
    assert kept(frames)["prompt_tokens"].to_list() == [100, 100]
    assert counted == 3


def test_a_full_window_closes_the_oldest_trace() -> None:
    carry: dict[str, Any] = {"window": Window(limit=10)}
    rows = []
    for number in range(50):
        spans = (chat(str(n), trace=f"{number + 1:032x}") for n in range(1, 4))
        rows.append(len(parse(line(*spans), carry=carry).rows))
        assert carry["window"].size <= 10
    assert rows == [0, 0, 0] + [3] * 47
    assert list(carry["window"].traces) == [f"{n:032x}" for n in (48, 49, 50)]
    assert len(otel.rest(carry, SOURCE).rows) == 9
    assert carry["window"].size == 0


def test_a_trace_that_is_touched_stays_open() -> None:
    old = chat("1", gen_ai__response__id="r")
    others = [line(*(chat(str(n), trace=f"{t:032x}") for n in range(1, 4))) for t in range(1, 4)]
    touch, last = line(span("8", "1", name="POST")), line(engine("9", "8", gen_ai__request__id="r"))
    frames, _ = in_batches([line(old), others[0], touch, others[1], last, others[2]], [1] * 6, limit=7)
    (row,) = kept(frames).filter(pl.col("session_id") == TRACE).to_dicts()
    assert row["queue_s"] == 0.25


def test_a_file_that_grows_gives_what_it_gives_as_a_whole(tmp_path: Path) -> None:
    lines = [line(chat("2", "1", 0, 2)), line(tool("3", "1", 2, 4), chat("4", "1", 4, 6)), line(agent("1"))]
    grown, whole = tmp_path / "a" / "spans.jsonl", tmp_path / "b" / "spans.jsonl"
    for path in (grown, whole):
        path.parent.mkdir()
    for size in (1, 2, 3):
        grown.write_bytes(b"".join(written + b"\n" for written in lines[:size]) + b'{"resourceSp')
        result = ingested(tmp_path / "grown", grown, form="otel")
    assert counts(result) == (2, 2, 0, 0)
    whole.write_bytes(grown.read_bytes())
    ingested(tmp_path / "whole", whole, form="otel")
    assert lake(tmp_path / "grown").equals(lake(tmp_path / "whole"))
    assert lake(tmp_path / "whole")["logged_tool_wait_s"].to_list() == [None, 2.0]


def test_recognise_is_narrow() -> None:
    assert otel.recognise(Head("a", [{"resourceSpans": []}]))
    assert otel.recognise(Head("a", [{"traceId": "", "spanId": "", "startTimeUnixNano": "1"}]))
    assert otel.recognise(Head("a", [{"resourceMetrics": []}])) is None
    assert otel.recognise(Head("a", [{"traceId": "t", "startTime": "x", "type": "GENERATION"}])) is None


def test_source_settings_hold_where_the_user_gives_none() -> None:
    assert SOURCE.zero_usage == otel.DEFAULTS["zero_usage"]
    seconds = Source("otel", "x", time_unit="s")
    row = parse(
        line(chat("1", more={"startTimeUnixNano": 1_772_359_200, "endTimeUnixNano": None})), source=seconds
    ).rows
    assert row["arrived_at"].to_list() == [START_NS // 1000]
