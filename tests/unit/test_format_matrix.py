"""Every format against one log of every other: a file of another format is refused with the format it looks like."""

from __future__ import annotations

import gzip

import polars as pl
import pytest
from format_samples import SAMPLES, lines
from ingesting import counts, ingested, rejects

from flows.reading.formats import format_names
from flows.reading.look import look
from flows.reading.recognise import candidates, check_format
from flows.reading.rows import read_rows
from transforms.errors import InputError
from transforms.fleet import Source

ALIKE = {("mooncake", "aiperf-trace"), ("mooncake", "vllm-timed-trace"), ("vllm-timed-trace", "mooncake")}
"""(file, format it is read as): replay traces of the same keys, told apart by `time_unit` and `block_tokens` alone."""
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2026-03-01 10:00:00,10,1\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One file a format, and what is seen of it."""
    out = {}
    for form, (name, text, _) in SAMPLES.items():
        path = tmp_path_factory.mktemp(form) / name
        path.write_text(text)
        out[form] = look(path)
    return out


def test_every_format_has_a_sample_that_it_reads_and_that_is_recognised(files):
    assert {*SAMPLES, "mapped"} == {*format_names()}
    for form, (_, _, settings) in SAMPLES.items():
        assert list(candidates(files[form].head)) == [form]
        reading = read_rows(files[form].path, Source(form, "", **settings))
        assert len(reading.rows) >= 1, form
        assert not reading.rejects, form


@pytest.mark.parametrize("form", sorted(SAMPLES))
def test_a_file_of_another_format_is_refused_with_the_one_it_looks_like(files, form):
    for other, seen in files.items():
        if other == form or (other, form) in ALIKE:
            check_format(seen, Source(form, ""))
            continue
        with pytest.raises(InputError, match=rf"is not in format {form}; it looks like {other}; use --format {other}$"):
            check_format(seen, Source(form, ""))


@pytest.mark.parametrize("form", ["codex", "claude-code", "tgi", "sglang"])
def test_a_file_in_which_nothing_is_of_the_format_is_refused(tmp_path, form):
    path = tmp_path / "other.jsonl"
    path.write_text(lines({"level": "info", "msg": "started"}, {"level": "info", "msg": "ready"}))
    with pytest.raises(
        InputError, match=rf"other.jsonl: no.* {form} \(2 (ignored|rejected.*)\); check --format"
    ) as told:
        ingested(tmp_path / "home", path, form=form, timezone="UTC")
    assert "\n" not in str(told.value)


def test_a_log_of_the_format_without_a_request_is_read(tmp_path):
    path = tmp_path / "rollout.jsonl"
    path.write_text(lines({"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta", "payload": {"id": "s"}}))
    result = ingested(tmp_path / "home", path, form="codex")
    assert (counts(result), result.files[0].status, result.files[0].ignored) == ((0, 0, 0, 0), "complete", 1)


def test_a_format_of_one_s_own_is_told_from_others(tmp_path):
    folder = tmp_path / "home" / "catalog" / "formats"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        'arrived_at = "at"\n[ignore]\npresent = ["tool"]\n[recognise]\nkeys = ["at", "svc"]\n'
    )
    path = tmp_path / "a.jsonl"
    path.write_text(lines({"at": "2026-03-01T10:00:00Z", "svc": "a", "tool": 1}))
    for form in ("mine", "auto"):
        assert ingested(tmp_path / "home", path, form=form).files[0].source == "mine"
    path.write_text(lines({"tool": 1}, {"tool": 2}))
    with pytest.raises(InputError, match=r"nothing in it is of format mine \(2 ignored\)"):
        ingested(tmp_path / "home", path, form="mine")
    path.write_text(lines({"at": "2026-03-01T10:00:00Z", "svc": "a"}))
    with pytest.raises(InputError, match="is not in format litellm; it looks like mine; use --format mine"):
        ingested(tmp_path / "home", path, form="litellm")


def test_replay_refuses_another_format_too(files):
    with pytest.raises(InputError, match="it looks like litellm"):
        read_rows(files["litellm"].path, Source("langfuse", ""))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("head.csv", HEADER.encode(), "has column names and no rows"),
        ("head.csv.gz", gzip.compress(HEADER.encode(), mtime=0), "has column names and no rows"),
        ("none.json", b"[ ]\n", "holds no records"),
        ("blank.csv", b"\n \n", "is empty"),
    ],
    ids=["csv", "gz", "array", "blank"],
)
def test_a_file_without_a_record(tmp_path, name, data, words):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / name).write_bytes(data)
    for form in ("azure", "auto"):
        with pytest.raises(InputError, match=f"{name}: {words}; nothing to ingest"):
            ingested(tmp_path / "home", folder / name, form=form, timezone="UTC")
    (folder / "rows.csv").write_text(HEADER + ROW)
    result = ingested(tmp_path / "home", folder, form="azure", timezone="UTC")
    assert {file.source_file: file.status for file in result.files} == {name: "empty", "rows.csv": "complete"}


def test_a_parquet_file_without_a_row(tmp_path):
    path = tmp_path / "rows.parquet"
    pl.DataFrame(schema={"arrived_at": pl.String}).write_parquet(path)
    with pytest.raises(InputError, match="has column names and no rows"):
        ingested(tmp_path / "home", path, form="kvledger")


def test_lines_that_end_in_cr_alone(tmp_path):
    path = tmp_path / "mac.csv"
    path.write_bytes((HEADER + ROW).replace("\n", "\r").encode())
    with pytest.raises(InputError, match=r"mac.csv: its lines end in CR alone; write them with LF"):
        ingested(tmp_path / "home", path, form="azure", timezone="UTC")


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 40, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"x" * 300_000 + b",b\n1,2\n"]
)
@pytest.mark.parametrize("form", ["azure", "litellm", "auto"])
def test_what_is_no_text_is_refused_in_one_line(tmp_path, data, form):
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=r"rows.csv: (no record could be read as|its format is not recognised)"
    ) as told:
        ingested(tmp_path / "home", path, form=form, timezone="UTC")
    assert "\n" not in str(told.value)
    assert not len(rejects(tmp_path / "home"))
