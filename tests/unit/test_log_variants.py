"""Logs of the kinds in the shared cases, written another way: other names, orders, units and dialects, same rules."""

from __future__ import annotations

import gzip
import io
import json

import polars as pl
import pytest

from flows.reading.look import look
from flows.reading.recognise import unfit
from flows.reading.rows import read_rows
from transforms.fleet import Source

START = "2026-03-01T10:00:00Z"
NOON = {"arrived_at": {"value": START}}


@pytest.fixture
def read(tmp_path):
    """Read a text, or records as JSON lines, in the format; gives the Reading."""

    def read(form, log, name="log.jsonl", **settings):
        path = tmp_path / name
        text = log if isinstance(log, str | bytes) else "".join(json.dumps(record) + "\n" for record in log)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_rows(path, Source(form, str(path), **settings))

    return read


def spend(number, **more):
    return {
        "request_id": f"r{number}", "call_type": "acompletion", "startTime": "2026-03-01 10:00:00",
        "endTime": "2026-03-01 10:00:05", "completionStartTime": "2026-03-01 10:00:01", "prompt_tokens": 10,
        "completion_tokens": 5, "status": "success", "metadata": {}, **more,
    }  # fmt: skip


SPEND = [
    spend(0, status="Failed", metadata={"error_information": {"error_code": "503"}}),
    spend(1, status="some day"),
    spend(2, status=None),
    spend(3, metadata={"status": "failure", "error_information": {"error_class": "APITimeoutError"}}),
    spend(4, status="cancelled"),
    spend(5, status="failure", metadata={"error_information": {"error_class": "ContextWindowExceededError"}}),
]


@pytest.mark.parametrize("way", ["fast", "lenient"])
def test_spend_logs_say_how_a_call_ended_in_one_of_two_places(read, way):
    rows = SPEND if way == "fast" else [{**row, "prompt_tokens": "10.0"} for row in SPEND]
    reading = read("litellm", rows)
    assert reading.rows.select("request_id", "status").rows() == [
        ("r0", "error"), ("r2", "ok"), ("r3", "timeout"), ("r4", "aborted"), ("r5", "rejected"),
    ]  # fmt: skip
    assert [reject.reason for reject in reading.rejects] == ["status is not a word we know"]


NUMBERS = {
    " 15 ": 15, "1,234": 1234, "1e2": 100, "14.0": 14, "+7": 7, "NaN": None, "inf": None, "None": None, "null": None,
    "-5": None, "true": ..., "14.5": ..., "12 tokens": ..., "1_000": ..., "0x10": ..., "1,23": ...,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_numbers_as_texts(read, kind):
    mapping = {**NOON, "request_id": "id", "prompt_tokens": "p"}
    rows = [{"id": f"{n:02}", "p": text} for n, text in enumerate(NUMBERS)]
    log = "id;p\n" + "".join(f"{row['id']};{row['p']}\n" for row in rows) if kind == "csv" else rows
    reading = read("mapped", log, name=f"log.{kind}", map=mapping)
    assert reading.rows["prompt_tokens"].to_list() == [value for value in NUMBERS.values() if value is not ...]
    assert len(reading.rejects) == list(NUMBERS.values()).count(...)
    assert reading.rows.filter(reading.rows["flags"].list.len() > 0)["request_id"].to_list() == ["09"]


def test_block_ids_of_64_bits_as_numbers_and_as_texts(read):
    ids = [[2**64 - 1], [str(2**64 - 1), "7"], [], [2**64], [1.0], ["x"], [-1]]
    rows = [{"id": n, "h": held} for n, held in enumerate(ids)]
    reading = read("mapped", rows, map={**NOON, "request_id": "id", "prefix_block_ids": "h"})
    assert reading.rows["prefix_block_ids"].to_list() == [[2**64 - 1], [2**64 - 1, 7], []]
    assert len(reading.rejects) == 4


FINISH = {
    "MAX_TOKENS": "length", "FinishReason.STOP": "ok", "eos_token": "ok", "cancelled": "aborted", "SAFETY": "ok",
    "engine_error": "error", "something new": "ok", "timeout": "timeout",
}  # fmt: skip


def test_finish_reasons_of_other_engines(read):
    rows = [{"id": n, "fr": word} for n, word in enumerate(FINISH)]
    rows += [{"id": 8, "fr": ["length"]}, {"id": 9, "fr": {"reason": "abort"}}, {"id": "x", "fr": "word " * 30}]
    found = read("mapped", rows, map={**NOON, "request_id": "id", "finish_reason": "fr"}).rows
    assert found["status"].to_list() == [*FINISH.values(), "length", "aborted", "ok"]
    assert found["flags"].to_list()[4] == ["refusal"]
    assert found["finish_reason"].to_list()[-1] is None  # no word, and not ours to keep


@pytest.mark.parametrize(
    ("zone", "stamps", "utc"),
    [
        ("America/New_York", ["11-01 01:30", "11-01 01:10", "11-01 02:00"], ["05:30", "06:10", "07:00"]),
        ("Australia/Lord_Howe", ["04-05 01:40", "04-05 01:35", "04-05 02:00"], ["14:40", "15:05", "15:30"]),
    ],
)  # fmt: skip
def test_an_hour_that_happens_twice_elsewhere(read, zone, stamps, utc):
    log = "t\n" + "".join(f"2026-{stamp}:00\n" for stamp in stamps)
    found = read("mapped", log, "log.csv", map={"arrived_at": "t"}, timezone=zone, file_order="arrival").rows
    assert [at.strftime("%H:%M") for at in found["arrived_at"]] == utc
    assert found["flags"].list.len().sum() == 0


@pytest.mark.parametrize(
    ("log", "models"),
    [
        ('model,x\n"a;b",1\n"c\nd",2\n"e""f",3\n', ["a;b", "c\nd", 'e"f']),
        ('model;x\na,b;1\n"c;d";2\n', ["a,b", "c;d"]),
        ("x\tmodel\n1\ta;b\n2\tc,d\n", ["a;b", "c,d"]),
        ("\ufeffmodel,x\r\na,1\r\n\r\nb,2\r\n", ["a", "b"]),
    ],
)  # fmt: skip
def test_dialects_of_csv(read, log, models):
    mapping = {"arrived_at": {"value": START}, "model": "model", "prompt_tokens": "x"}
    found = read("mapped", log, "log.csv", map=mapping).rows.sort("source_position")
    assert found["model"].to_list() == models


def test_columns_of_public_traces_in_another_order(read):
    azure = read(
        "azure", "GeneratedTokens,TIMESTAMP,ContextTokens\n10,2024-05-10 00:00:00.0099309+00:00,48\n", "a.csv"
    ).rows
    assert azure.select("prompt_tokens", "output_tokens").row(0) == (48, 10)
    assert azure["arrived_at"][0].microsecond == 9930
    burst = read(
        "burstgpt",
        "Model,Timestamp,Response tokens,Request tokens\nm,5.5,0,7\nm,6.5,0.0,7.0\n",
        "b.csv",
        origin="2026-03-01T00:00:00Z",
    ).rows
    assert burst.select("prompt_tokens", "output_tokens", "status").rows() == [(7, None, "error")] * 2


@pytest.mark.parametrize("odd", ["1e1", "", "-5", "1_0", " 7", "true"])
def test_whole_numbers_of_csv_are_the_same_on_the_fast_way_and_on_the_other(read, odd):
    mapping = {**NOON, "request_id": "id", "prompt_tokens": "p", "output_tokens": "o"}
    rows = f"id,p,o\na,1,2\nb,{odd},3\nc,4,5\n"
    fast, quoted = (read("mapped", log, "log.csv", map=mapping) for log in (rows, rows.replace("\na,", '\n"a",')))
    shown = ("request_id", "prompt_tokens", "output_tokens", "flags")
    assert fast.rows.select(shown).equals(quoted.rows.select(shown))
    assert [reject.reason for reject in fast.rejects] == [reject.reason for reject in quoted.rejects]


def ask(second):
    return {"type": "user", "timestamp": f"2026-03-01T10:00:0{second}Z", "sessionId": "s", "message": {"content": "?"}}


def answer(number, second, usage=None):
    usage = usage or {"input_tokens": 5, "output_tokens": 5}
    message = {"id": f"m{number}", "model": "c", "content": [], "stop_reason": "end_turn", "usage": usage}
    stamp = f"2026-03-01T10:00:0{second}Z"
    return {"type": "assistant", "uuid": f"u{number}", "timestamp": stamp, "sessionId": "s", "message": message}


def test_an_answer_stamped_like_its_question_has_an_unknown_length(read):
    claude = read("claude-code", [ask(1), answer(1, 1), ask(3), answer(2, 5)]).rows
    assert claude["e2e_s"].to_list() == [None, 2.0]
    alone = read("claude-code", [answer(1, 1)]).rows
    assert alone.select("e2e_s", "flags").row(0) == (None, ["arrival_from_response"])
    counted = {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2, "total_tokens": 11}
    events = [("user_message", {}), ("token_count", {"info": {"total_token_usage": counted}})]
    lines = [
        {"timestamp": "2026-03-01T10:00:01Z", "type": "event_msg", "payload": {"type": kind, **more}}
        for kind, more in events
    ]
    codex = read("codex", lines).rows
    assert codex.select("prompt_tokens", "cached_prompt_tokens", "e2e_s").rows() == [(9, 4, None)]


SHORT = "id,t,p\n1,2026-03-01T10:00:00Z,1\n{odd}\n4,2026-03-01T10:00:03Z,\n"


@pytest.mark.parametrize(
    ("odd", "rejected"),
    [("", 0), ("2,2026-03-01T10:00:01Z", 1), ("3,2026-03-01T10:00:02Z,3,9", 1),
     ("2,2026-03-01T10:00:01Z\n3,2026-03-01T10:00:02Z,3,9", 2), ("2,2026-03-01T10:00:01Z\n\n3,x,3,9", 2)],
)  # fmt: skip
def test_csv_records_of_another_width_are_rejected_beside_empty_cells(read, odd, rejected):
    mapping = {"arrived_at": "t", "request_id": "id", "prompt_tokens": "p"}
    for log in (SHORT, SHORT.replace("\n1,", '\n"1",')):
        reading = read("mapped", log.format(odd=odd), "log.csv", map=mapping)
        assert reading.rows.select("request_id", "prompt_tokens").rows() == [("1", 1), ("4", None)]
        assert [reject.reason for reject in reading.rejects] == ["wrong number of fields"] * rejected


def test_gateway_cache_hits_in_other_spellings(read):
    hits = ["TRUE", True, False, None, "no", "Cache OFF"]
    found = read("litellm", [spend(n, cache_hit=hit) for n, hit in enumerate(hits)]).rows
    assert found.sort("request_id")["served_by"].to_list() == ["gateway_cache"] * 2 + ["backend"] * 4


def test_responses_end_in_words_of_their_own(read):
    ends = {"completed": "ok", "incomplete": "length", "failed": "error", "cancelled": "aborted"}
    rows = [
        {
            "id": f"resp_{n}", "object": "response", "created_at": 1772359200 + n, "model": "m", "status": word,
            "incomplete_details": {"reason": "max_output_tokens"} if word == "incomplete" else None,
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 30,
                      "output_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 130},
        }
        for n, word in enumerate(ends)
    ]  # fmt: skip
    found = read("openai", rows).rows
    assert found["status"].to_list() == list(ends.values())
    assert set(found.select("prompt_tokens", "cached_prompt_tokens", "output_tokens").rows()) == {(100, 60, 30)}


def test_a_report_in_yaml_says_what_would_serve(tmp_path):
    path = tmp_path / "report.yaml"
    path.write_text("metadata:\n  version: 2\n  guidellm_version: 0.8.1\nbenchmarks:\n- type_: generative\n")
    assert "--outputs json" in unfit(look(path).head)


NESTED = {**NOON, "request_id": "id", "prompt_tokens": "usage.in", "finish_reason": "finish"}
INSIDE = [{"id": "a", "usage": {"in": 7, "out": 1}, "finish": ["length"]}, {"id": "b", "usage": None, "finish": None}]


@pytest.mark.parametrize("kind", ["jsonl", "texts", "twice", "csv", "parquet"])
def test_a_path_goes_into_json_texts_cells_and_structs(read, tmp_path, kind):
    texts = [{name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}
             for row in INSIDE]  # fmt: skip
    twice = [{**row, "usage": row["usage"] and json.dumps(row["usage"])} for row in texts]
    frame, table = pl.DataFrame(INSIDE), io.BytesIO()
    frame.write_parquet(table)
    cells = pl.DataFrame(texts).write_csv()
    log = {"jsonl": INSIDE, "texts": texts, "twice": twice, "csv": cells, "parquet": table.getvalue()}[kind]
    found = read("mapped", log, f"log.{kind}", map=NESTED).rows
    assert found.select("request_id", "prompt_tokens", "status").rows() == [("a", 7, "length"), ("b", None, "ok")]


def test_a_list_as_python_prints_it_is_a_finish_reason(read):
    found = read("mapped", "id,finish\na,\"['length', 'stop']\"\n", "log.csv", map={**NOON, "finish_reason": "finish"})
    assert found.rows["status"].to_list() == ["length"]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_words_for_no_name_are_no_session(read, kind):
    words = ["None", "null", "NaN", "nan", "-", "N/A", "s 1"]
    log = "s\n" + "".join(f"{word}\n" for word in words) if kind == "csv" else [{"s": word} for word in words]
    found = read("mapped", log, f"log.{kind}", map={**NOON, "session_id": "s"}).rows
    assert sorted(found["session_id"].to_list(), key=str) == [*[None] * 6, "s 1"]


def test_numbers_that_are_names_are_the_same_as_whole_numbers_and_as_floats(read):
    found = read("mapped", '{"s": 7}\n{"s": 7.0}\n{"s": "7.0"}\n', map={**NOON, "session_id": "s"}).rows
    assert sorted(found["session_id"].to_list()) == ["7", "7", "7.0"]


def test_helicone_paths_and_properties_of_a_csv(read):
    log = "request_id,request_created_at,request_path,request_properties\n" + "".join(
        f'h{n},2026-03-01T10:00:00Z,{path},"{{""Helicone-Session-Id"": ""s""}}"\n'
        for n, path in enumerate(("/v1/chat/completions", "https://x.y/v1/embeddings", "/v1/rerank?n=1"))
    )
    found = read("helicone", log, "h.csv").rows
    assert found["operation"].to_list() == ["chat", "embedding", "rerank"]
    assert found["session_id"].to_list() == ["s"] * 3


def test_metadata_that_is_a_text_of_a_text(read):
    usage = json.dumps({"usage_object": {"prompt_tokens_details": {"cached_tokens": 4}}})
    found = read("litellm", [spend(1, metadata=json.dumps(usage)), spend(2, metadata=usage)]).rows
    assert found["cached_prompt_tokens"].to_list() == [4, 4]


def test_a_first_token_that_comes_with_the_end_is_of_an_answer_that_was_not_streamed(read):
    mapping = {**NOON, "request_id": "id", "output_tokens": "o", "ttft_s": "f", "e2e_s": "e"}
    rows = [{"id": n, "o": o, "f": f, "e": 2.0} for n, (o, f) in enumerate([(5, 2.0), (1, 2.0), (5, 0.5), (None, 2)])]
    assert read("mapped", rows, map=mapping).rows["ttft_s"].to_list() == [None, 2.0, 0.5, None]


@pytest.mark.parametrize("form", ["azure", "litellm"])
def test_a_header_inside_of_a_csv_is_that_of_a_file_put_behind_another(read, form):
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-03-01 10:00:00+00:00,10,5\n"
    spent = pl.DataFrame([{key: value for key, value in spend(1).items() if key != "metadata"}]).write_csv()
    log = {"azure": azure + azure.replace("10,5", "11,5"), "litellm": spent + spent.replace("r1", "r2")}[form]
    reading = read(form, log, "log.csv")
    assert (len(reading.rows), reading.ignored, reading.rejects) == (2, 2, [])


def test_kong_lines_that_no_model_answered_are_no_requests(read):
    line = {"started_at": 1772359200000, "latencies": {"request": 9}, "request": {"id": "1"}}
    usage = {"meta": {"request_model": "m"}, "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    rows = [
        line,
        {**line, "ai": {"proxy": usage}},
        {**line, "request": {"id": "2"}, "ai": {"ai-proxy-advanced": usage}},
    ]
    reading = read("kong", rows)
    assert reading.rows["prompt_tokens"].to_list() == [10, 10]
    assert (reading.ignored, reading.rejects) == (1, [])


def test_lines_of_the_server_among_its_requests_are_no_requests(read):
    out = {"prompt_tokens": 9, "completion_tokens": 5, "e2e_latency": 2.0, "request_received_ts": 1772359201.0}
    line = {"timestamp": "2026-03-01T10:00:03", "event": "request.finished", "rid": "a", "out": {"meta_info": out}}
    log = f'[2026-03-01 10:00:00 TP0] Decode batch\n{json.dumps(line)}\nINFO:     1.2.3.4:5 - "GET / HTTP/1.1"\n?\n'
    reading = read("sglang", log, timezone="UTC")
    assert (len(reading.rows), reading.ignored) == (1, 2)
    assert [reject.reason for reject in reading.rejects] == ["not JSON"]


def test_a_turn_before_the_one_it_answers_belongs_to_its_conversation(read):
    chats = [(1, -1, 0), (9, 2, 9), (2, 1, 3), (4, 4, 5)]
    rows = [
        {"chat_id": own, "parent_chat_id": parent, "timestamp": at, "input_length": 33, "output_length": 5, "turn": 1}
        for own, parent, at in chats
    ]
    found = read("bailian", rows, origin=START).rows
    assert found["session_id"].to_list() == ["1", "1", "4", "1"]


def test_choices_asked_for_or_answered_are_counted(read):
    said = {"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]}
    found = read("litellm", [spend(1, response=said), spend(2)]).rows
    assert found["choices"].to_list() == [2, None]
    seen = {"id": "o", "type": "GENERATION", "startTime": START, "modelParameters": '{"n": "2", "max_tokens": 9}'}
    langfuse = read("langfuse", [seen]).rows
    assert langfuse.select("choices", "requested_output_tokens").row(0) == (2, 9)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"num_prompts": 2, "completed": 2, "mean_ttft_ms": 3.0, "backend": "vllm"}, "--save-detailed"),
        ({"type": "thread.started", "thread_id": "t"}, "rollout"),
    ],
)
def test_totals_and_streams_without_times_say_what_would_serve(tmp_path, record, told):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert told in unfit(look(path).head)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "jsonl.gz"])
def test_text_in_utf_16_is_read_like_that_in_utf_8(read, kind, coding):
    rows = [{"id": "\u00e9", "p": 10}, {"id": "b", "p": 11}]
    text = "id,p\r\n\u00e9,10\r\nb,11\r\n" if kind == "csv" else "".join(json.dumps(row) + "\n" for row in rows)
    log = ("" if coding == "utf-16" else "\ufeff") + (json.dumps(rows) if kind == "json" else text)
    held = gzip.compress(log.encode(coding)) if kind.endswith("gz") else log.encode(coding)
    found = read("mapped", held, f"log.{kind}", map={**NOON, "request_id": "id", "prompt_tokens": "p"}).rows
    assert sorted(found.select("request_id", "prompt_tokens").rows()) == [("b", 11), ("\u00e9", 10)]


ARRAY = [spend(n) for n in range(3)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_whole_elements_of_an_array_that_is_cut_off_are_kept(read, indent, pack):
    reading = read("litellm", pack(json.dumps(ARRAY, indent=indent)[:-20].encode()), "log.json")
    assert (len(reading.rows), reading.ignored, reading.rejects) == (2, 1, [])
    assert reading.status == ("growing" if pack is bytes else "truncated")


def test_what_follows_the_damage_of_an_array_is_one_reject(read):
    text = json.dumps(ARRAY).replace('"r1",', '"r1",,')
    reading = read("litellm", text, "log.json")
    assert reading.rows["request_id"].to_list() == ["r0"]
    assert [(reject.position, reject.reason) for reject in reading.rejects] == [(1, "not JSON")]


def test_arrays_one_after_the_other_and_lenient_ones_are_whole(read):
    text = json.dumps(ARRAY[:2]) + "\n" + json.dumps(ARRAY[2:]).replace(": 10,", ": NaN,")
    reading = read("litellm", text, "log.json")
    assert reading.rows.sort("request_id")["prompt_tokens"].to_list() == [10, 10, None]
    assert (reading.ignored, reading.rejects, reading.status) == (0, [], "complete")


def test_marks_of_files_put_one_behind_the_other_are_no_part_of_a_line(read):
    mapping = {**NOON, "request_id": "id"}
    lines = b'\xef\xbb\xbf{"id": "a"}\n'
    found = read("mapped", gzip.compress(lines) + gzip.compress(lines.replace(b'"a"', b'"b"')), map=mapping).rows
    assert sorted(found["request_id"].to_list()) == ["a", "b"]
    table = read("mapped", b"\xef\xbb\xbfid, p\na, 1\n\xef\xbb\xbfid, p\nb , 2\n", "log.csv", map=mapping)
    assert sorted(table.rows["request_id"].to_list()) == ["a", "b"]
    assert (table.ignored, table.rejects) == (2, [])
