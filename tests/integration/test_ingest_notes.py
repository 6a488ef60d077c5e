"""What ingest says beside its counts: settings that the token counts disprove, and sources that changed."""

from __future__ import annotations

import json

import polars as pl
import pytest
from format_samples import LITELLM, OPENAI, lines
from ingesting import ingested, lake_hash

from flows.drift import series_of
from flows.home import open_home
from flows.ingest import FileResult
from flows.lake import drift_path
from flows.notes import refusals
from flows.profile import is_name
from flows.reading.formats import format_names, with_defaults
from flows.reading.vocabulary import vocabulary
from transforms.fleet import Source

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def body(number, total=120, reasoning=0):
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {}
    return {**OPENAI, "id": f"c{number}", "usage": {**USAGE, **details, "total_tokens": total}}


def spend(number, day=1, **more):
    stamp = f"2026-03-{day:02}T10:{number % 60:02}:00Z"
    row = {**LITELLM, "request_id": f"{day}-{number}", "startTime": stamp, "endTime": stamp.replace(":00Z", ":05Z")}
    return {name: value for name, value in {**row, **more}.items() if value is not ...}


def drift(root):
    return pl.read_parquet(drift_path(open_home(root)))


def texts(result):
    return [note.text for note in result.warnings]


def test_a_setting_that_the_counts_disprove_is_named_with_its_rows(tmp_path):
    log = tmp_path / "bodies.jsonl"
    log.write_text(lines(body(1), body(2, total=150, reasoning=30), body(3, total=125, reasoning=5), body(4)))
    result = ingested(tmp_path / "home", log, form="openai")
    assert [(note.code, note.text) for note in result.warnings] == [
        (
            "setting_disproved",
            (
                "bodies.jsonl (openai): in 2 of 4 rows the token counts only add up with "
                'reasoning_tokens = "outside"; read it again with --reasoning-tokens outside '
                "(or reasoning_tokens in [[sources]])"
            ),
        )
    ]
    assert json.loads(json.dumps(result.summary()))["warnings"][0].keys() == {"code", "text"}
    assert texts(ingested(tmp_path / "home", log, form="openai", reasoning_tokens="outside")) != texts(result)
    sound = tmp_path / "sound.jsonl"
    sound.write_text(lines(body(5), body(6)))
    assert not ingested(tmp_path / "home", sound, form="openai").warnings


def test_each_file_and_day_keeps_its_fields_shares_and_times(tmp_path):
    log = tmp_path / "a.jsonl"
    rows = [spend(n, day=1 + n // 20, model_group=... if n % 2 else "chat", shard="x") for n in range(40)]
    log.write_text(lines(*rows))
    assert not ingested(tmp_path / "home", log, form="litellm").warnings
    found = drift(tmp_path / "home")
    assert found["date"].unique().sort().to_list() == ["2026-03-01", "2026-03-02"]
    unknown = found.filter(kind="unknown")
    assert set(unknown["field"]) == {"shard", "spend", "total_tokens"}  # the last two are in every log, and not read
    known = found.filter(kind="known", date="2026-03-01")
    assert set(known["rows"]) == {20}
    shares = dict(known.select("field", "null_rows").iter_rows())
    assert (shares["prompt_tokens"], shares["e2e_s"], shares["queue_s"], shares["ttft_s"]) == (0, 0, 20, 20)
    assert [at.minute for at in known.select("first_arrived_at", "last_arrived_at").row(0)] == [0, 19]


def test_a_source_that_changed_is_told_once(tmp_path):
    home = tmp_path / "home"
    for day, more in ((1, {}), (2, {}), (3, {"prompt_tokens": ..., "build_tag": "b"}), (4, {"build_tag": "b"})):
        log = tmp_path / f"chat-2026-03-{day:02}.jsonl"
        log.write_text(lines(*(spend(n, day, **more) for n in range(30))))
        told = texts(ingested(home, log, form="litellm"))
        if day in (1, 2):
            assert told == []
        elif day == 3:
            assert told == [
                (
                    "chat-#-#-#.jsonl (litellm) changed since it was last read: new field 'build_tag'; "
                    "prompt_tokens is missing (known in 100% before); check the source's settings"
                )
            ]
        else:
            assert "prompt_tokens is unknown in 0% (before: 100%)" in told[0]
            assert "build_tag" not in told[0]
    assert not ingested(home, tmp_path / "chat-2026-03-04.jsonl", form="litellm").warnings


def test_a_share_that_moves_in_a_growing_file_is_told(tmp_path):
    log = tmp_path / "a.jsonl"
    log.write_text(lines(*(spend(n, 1, session_id="s") for n in range(30))))
    ingested(tmp_path / "home", log, form="litellm")
    with log.open("a") as more:
        more.write(lines(*(spend(30 + n, 2, session_id="s" if n % 2 else None) for n in range(30))))
    (told,) = texts(ingested(tmp_path / "home", log, form="litellm"))
    assert "session_id is unknown in 50% (before: 0%)" in told
    assert drift(tmp_path / "home").filter(field="session_id").sort("date")["null_rows"].to_list() == [0, 15]


def test_drift_is_a_function_of_the_files(tmp_path):
    names = []
    for day in (1, 2, 3):
        names.append(tmp_path / f"chat-{day}.jsonl")
        names[-1].write_text(lines(*(spend(n, day, extra=n) for n in range(25))))
    ingested(tmp_path / "x", *names, form="litellm")
    ingested(tmp_path / "y", *reversed(names), form="litellm")
    assert drift(tmp_path / "x").equals(drift(tmp_path / "y"))
    before = lake_hash(tmp_path / "x")
    ingested(tmp_path / "x", *names, form="litellm", zero_usage="zero")
    assert drift(tmp_path / "x").equals(drift(tmp_path / "y"))
    assert lake_hash(tmp_path / "x") != before  # the settings stand in the manifest


def test_names_that_look_like_content_are_not_kept(tmp_path):
    odd = {
        "alice@example.org": 1,
        "10.0.0.1": 1,
        "2026-03-01": 1,
        "sk-a81b77c09f3e2d": 1,
        "a word or two": 1,
        "ok_name": 1,
    }
    log = tmp_path / "a.jsonl"
    log.write_text(lines(*(spend(n, 1, **odd, **{f"k{n}_{m}": 1 for m in "abc"}) for n in range(30))))
    ingested(tmp_path / "home", log, form="litellm")
    kept = set(drift(tmp_path / "home").filter(kind="unknown")["field"])
    assert not kept & (odd.keys() - {"ok_name"})
    assert len(kept) == 50
    assert all(map(is_name, kept))


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("chat-2026-11-16.jsonl.gz", "chat-#-#-#.jsonl"),
        ("chat-2026-11-17.jsonl", "chat-#-#-#.jsonl"),
        ("logs/app.jsonl.2.gz", "logs/app.jsonl.#"),
        ("0b7d3f1e-2a77-4c11-9a0e-5d1f1c2b3a4d.jsonl", "#-#a#-#c#-#a#e-#.jsonl"),
        ("app.jsonl~3", "app.jsonl"),
    ],
)
def test_files_of_one_log_are_one_series(name, series):
    assert series_of(name) == series


def test_every_format_knows_its_fields():
    known = {name: vocabulary(with_defaults(Source(name, "x"))) for name in format_names() if name != "mapped"}
    assert all(known.values())
    assert {"startTime", "prompt_tokens", "cache_hit"} <= known["litellm"]
    assert {"usage", "choices", "created"} <= known["openai"]
    assert {"resourceSpans"} <= known["otel"]
    assert known["azure"] == {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}


def test_files_refused_and_records_rejected_are_told_the_first_of_each():
    refused = [FileResult("auto", f"{n}.log", "", "refused", reason="is nothing") for n in range(7)]
    bad = FileResult("azure", "a.csv", "", "complete", read=1200, loaded=1190, rejected=10)
    told = [(note.code, note.text) for note in refusals([bad, *refused])]
    assert told[0] == ("file_refused", "0.log (auto): is nothing")
    assert told[5:] == [
        ("file_refused", "the same of 2 more files; kvledger ingest lists them"),
        ("records_rejected", "a.csv (azure): 10 of 1,200 records rejected"),
    ]
    assert not refusals([FileResult("azure", "a.csv", "", "unchanged")])


def test_stamps_without_a_start_are_told_once_a_run(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        number = len(name) + ord(name[0])
        (tmp_path / name).write_text(
            f'{{"timestamp": 5, "input_length": {number}, "output_length": 7, "hash_ids": [1]}}\n'
        )
    files = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    (note,) = ingested(tmp_path / "home", *files, form="mooncake").warnings
    assert note.code == "assumed_origin"
    assert note.text.startswith("a.jsonl (mooncake) and 1 other: stamps count from a start that is not named")
    assert not ingested(tmp_path / "named", *files, form="mooncake", origin="2026-03-01T00:00:00Z").warnings


def test_a_mapped_field_that_no_record_has_is_told_once_with_the_nearest(tmp_path):
    rows = [{"ts": 1772359200 + n, "svc": "chat", "usage": {"in": 8, "out": n or None, "idle": None}} for n in range(9)]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(lines(*({**row, "rid": f"{name}{n}"} for n, row in enumerate(rows))))
    given = {
        "arrived_at": {"field": "ts", "unit": "s"}, "request_id": "rid", "model": ["service", "svc"],
        "prompt_tokens": "usage.inn", "output_tokens": "usage.out", "cached_prompt_tokens": "usage.idle",
        "status": ["state", {"value": "ok"}], "session_id": ["thread", "talk"],
    }  # fmt: skip
    files = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    result = ingested(tmp_path / "home", *files, form="mapped", mapping=given)
    assert [(note.code, note.text) for note in result.warnings] == [
        (
            "mapped_field_missing",
            (
                "a.jsonl and 1 other: prompt_tokens: no record has the field 'usage.inn'; did you mean 'usage.in'?; "
                "session_id: no record has the field 'thread' or 'talk'"
            ),
        )
    ]
    sound = {**given, "prompt_tokens": "usage.in", "session_id": "rid"}
    assert not ingested(tmp_path / "sound", *files, form="mapped", mapping=sound).warnings


def test_a_mapped_column_that_a_csv_need_not_have_is_told_too(tmp_path):
    log = tmp_path / "a.csv"
    log.write_text("ts,in_tokens,note\n2026-03-01T10:00:00Z,5,\n2026-03-01T10:00:01Z,6,\n")
    given = {"arrived_at": "ts", "prompt_tokens": "in_token", "session_id": "note", "recognise": {"columns": ["ts"]}}
    (told,) = texts(ingested(tmp_path / "home", log, form="mapped", mapping=given))
    assert told == "a.csv: prompt_tokens: no record has the field 'in_token'; did you mean 'in_tokens'?"
