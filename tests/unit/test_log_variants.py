"""Logs of the kinds in the shared cases, written another way: other names, orders, units and dialects, same rules."""

from __future__ import annotations

import json

import pytest

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
