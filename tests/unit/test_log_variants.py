"""Logs of the kinds in the shared cases, written another way: other names, orders, units and dialects, same rules."""

from __future__ import annotations

import json

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
        "Model,Timestamp,Response tokens,Request tokens\nm,5.5,0,7\n",
        "b.csv",
        origin="2026-03-01T00:00:00Z",
    ).rows
    assert burst.select("prompt_tokens", "output_tokens", "status").row(0) == (7, None, "error")


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
