"""Ingest end to end: exactly once, whatever grows, moves or is copied; the same bytes by any number of workers."""

from __future__ import annotations

import gzip
import json

import polars as pl
import pytest
import zstandard
from ingesting import counts, ingested, lake, lake_hash, rejects

from transforms.errors import InputError

MAP = {"request_id": "id", "arrived_at": "t", "prompt_tokens": "p", "output_tokens": "o", "model": "m"}
PLAIN = {"arrived_at": "t", "prompt_tokens": "p"}
BAD = b'{"id":"x","t":"never","prompt":"%s"}\n'
START = 1_772_359_200


def lines(first, last, step_s=60, **more):
    rows = (
        {"id": f"r{n}", "t": START + n * step_s, "p": n + 1, "o": 2 * n, "m": "m", **more} for n in range(first, last)
    )
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def spend_row(n, call, start_s, **more):
    stamp = f"2026-03-01 10:{start_s // 60:02}:{start_s % 60:02}.000000"
    row = {"request_id": n, "call_type": "acompletion", "startTime": stamp, "endTime": stamp, "litellm_call_id": call,
           "prompt_tokens": 10, "completion_tokens": 20, "model": "m", "status": "success", **more}  # fmt: skip
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("path", "settings", "rows"),
    [
        ("azure2023/AzureLLMInferenceTrace_conv.csv", {"form": "azure", "timezone": "UTC"}, 19_366),
        ("mooncake/conversation_trace.jsonl", {"form": "mooncake", "origin": "2023-11-13T00:00:00Z"}, 12_031),
    ],
)
def test_public_traces_once(shared_dir, home, path, settings, rows):
    path = shared_dir / "traces" / path
    assert counts(ingested(home, path, **settings)) == (rows, rows, 0, 0)
    before = lake_hash(home)
    again = ingested(home, path, **settings)
    assert (again.files[0].status, counts(again)) == ("unchanged", (0, 0, 0, 0))
    assert lake_hash(home) == before
    assert lake(home)["request_id"].is_unique().all()


@pytest.mark.shared
def test_auto_names_azure_and_mooncake(shared_dir, home):
    traces = shared_dir / "traces"
    azure = ingested(home, traces / "azure2023" / "AzureLLMInferenceTrace_conv.csv", form="auto", timezone="UTC")
    mooncake = ingested(home, traces / "mooncake" / "conversation_trace.jsonl", form="auto")
    assert [azure.files[0].source, mooncake.files[0].source] == ["azure", "mooncake"]


@pytest.mark.shared
def test_identical_rows_of_mooncake_are_two(shared_dir, home):
    ingested(home, shared_dir / "traces" / "mooncake" / "conversation_trace.jsonl", form="mooncake")
    ends = lake(home)["request_id"].str.extract(r"-(\d+)$").value_counts().sort("count")
    assert ends["count"].to_list() == [1, 12_030]


def test_same_bytes_with_one_and_two_workers_and_none(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for n in range(5):
        (folder / f"{n}.jsonl").write_bytes(lines(n * 900, n * 900 + 1000))
    hashes = set()
    for workers in (0, 1, 2):
        ingested(tmp_path / f"home{workers}", folder, form="mapped", mapping=MAP, workers=workers)
        hashes.add(lake_hash(tmp_path / f"home{workers}"))
    assert len(hashes) == 1


def test_parts_of_one_file_give_the_bytes_of_the_whole(tmp_path, monkeypatch):
    log = tmp_path / "a.jsonl"
    log.write_bytes(lines(0, 600) + lines(0, 10))
    results = []
    for part_bytes in (1 << 26, 9_000, 2_777):
        monkeypatch.setattr("flows.parts.PART_BYTES", part_bytes)
        home = tmp_path / f"home{part_bytes}"
        for mapping, name in ((MAP, "ids"), (PLAIN, "plain")):
            results.append(
                (name, counts(ingested(home / name, log, form="mapped", mapping=mapping)), lake_hash(home / name))
            )
    assert len(set(results)) == 2
    assert {name: total for name, total, _ in results} == {
        "ids": (610, 600, 10, 0), "plain": (610, 610, 0, 0),
    }  # fmt: skip


@pytest.mark.parametrize("mapping", [MAP, PLAIN], ids=["ids", "content"])
def test_a_file_that_grows_ends_where_one_reading_would(tmp_path, mapping):
    whole = lines(0, 300) + lines(290, 300)
    cuts = [0, 1000, 1001, 5000, 5050, 9999, len(whole)]
    log = tmp_path / "grows.jsonl"
    for cut in cuts[1:]:
        log.write_bytes(whole[:cut])
        result = ingested(tmp_path / "steps", log, form="mapped", mapping=mapping)
        assert result.files[0].status in ("growing", "complete")
    assert result.files[0].status == "complete"
    ingested(tmp_path / "once", log, form="mapped", mapping=mapping)
    assert lake_hash(tmp_path / "steps") == lake_hash(tmp_path / "once")


def test_a_last_line_without_end_is_read_again_when_it_goes_on(tmp_path, home):
    log = tmp_path / "open.csv"
    mapping = {"arrived_at": "t", "prompt_tokens": "p"}
    log.write_bytes(b"t,p\n1772359200,10\n1772359201,44")
    ingested(home, log, form="mapped", mapping=mapping)
    assert lake(home)["prompt_tokens"].to_list() == [10, 44]
    log.write_bytes(b"t,p\n1772359200,10\n1772359201,443\n")
    result = ingested(home, log, form="mapped", mapping=mapping)
    assert lake(home)["prompt_tokens"].to_list() == [10, 443]
    assert counts(result) == (2, 2, 0, 0)


def test_rotation_renames_and_compression_add_nothing(tmp_path, home):
    log, rotated = tmp_path / "app.jsonl", tmp_path / "app.jsonl.1"
    log.write_bytes(lines(0, 100))
    ingested(home, log, form="mapped", mapping=MAP)
    log.rename(rotated)
    log.write_bytes(lines(100, 150))
    result = ingested(home, log, rotated, form="mapped", mapping=MAP)
    assert counts(result) == (150, 50, 100, 0)
    assert {file.source_file for file in result.files} == {"app.jsonl~2", "app.jsonl.1"}
    (tmp_path / "app.jsonl.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
    assert counts(ingested(home, tmp_path / "app.jsonl.1.gz", form="mapped", mapping=MAP)) == (100, 0, 100, 0)
    log.write_bytes(lines(100, 160))
    assert counts(ingested(home, log, form="mapped", mapping=MAP)) == (10, 10, 0, 0)
    assert sorted(lake(home)["request_id"].to_list()) == sorted(f"r{n}" for n in range(160))


@pytest.mark.parametrize("mapping", [MAP, PLAIN], ids=["ids", "content"])
def test_a_copy_in_any_compression_counts_once(tmp_path, home, mapping):
    data = lines(0, 50) + lines(10, 12)
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(data)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(data[:2000]) + gzip.compress(data[2000:]))
    (folder / "c.jsonl.zst").write_bytes(zstandard.compress(data))
    result = ingested(home, folder, form="mapped", mapping=mapping)
    once = 50 if "request_id" in mapping else 52
    assert counts(result) == (156, once, 156 - once, 0)
    for file in result.files:
        assert file.read == file.loaded + file.duplicates + file.rejected


def test_rows_without_an_id_meet_those_of_an_earlier_run(tmp_path, home):
    data = lines(0, 50) + lines(10, 12)
    first, copy, grown, other = (tmp_path / name for name in ("a.jsonl", "copy.jsonl", "grown.jsonl", "b.jsonl"))
    first.write_bytes(data)
    copy.write_bytes(data)
    assert counts(ingested(home, first, form="mapped", mapping=PLAIN)) == (52, 52, 0, 0)
    assert counts(ingested(home, copy, form="mapped", mapping=PLAIN)) == (52, 0, 52, 0)
    grown.write_bytes(data + lines(49, 51))
    assert counts(ingested(home, grown, form="mapped", mapping=PLAIN)) == (54, 2, 52, 0)
    other.write_bytes(b'{"t":%d,"p":7777}\n' % (START + 50 * 60))
    assert counts(ingested(home, other, form="mapped", mapping=PLAIN)) == (1, 1, 0, 0)
    assert len(lake(home)) == 55


def test_a_late_file_merges_into_an_older_date(tmp_path, home):
    new, late = tmp_path / "new.jsonl", tmp_path / "late.jsonl"
    new.write_bytes(lines(0, 50, step_s=120))
    late.write_bytes(lines(1000, 1050, step_s=7))
    ingested(home, new, form="mapped", mapping=MAP)
    ingested(home, late, form="mapped", mapping=MAP)
    stamps = lake(home)["arrived_at"]
    assert len(stamps) == 100
    assert stamps.is_sorted()


def test_other_settings_replace_the_rows_of_a_file(tmp_path, home):
    log = tmp_path / "a.csv"
    log.write_bytes(b"t,p\n2026-03-01 00:30:00,1\n2026-03-01 12:00:00,2\n")
    ingested(home, log, form="mapped", mapping=PLAIN, timezone="UTC")
    result = ingested(home, log, form="mapped", mapping=PLAIN, timezone="Europe/Berlin")
    assert [at.isoformat() for at in lake(home)["arrived_at"]] == [
        "2026-02-28T23:30:00+00:00", "2026-03-01T11:00:00+00:00",
    ]  # fmt: skip
    assert counts(result) == (2, 2, 0, 0)
    once = tmp_path / "once"
    ingested(once, log, form="mapped", mapping=PLAIN, timezone="Europe/Berlin")
    assert lake_hash(once) == lake_hash(home)


def test_the_fuller_of_two_records_stays_in_whatever_order_they_come(tmp_path):
    part, full = tmp_path / "part.jsonl", tmp_path / "full.jsonl"
    part.write_bytes(b'{"id":"x","t":1772359200,"p":5,"o":1}\n')
    full.write_bytes(b'{"id":"x","t":1772445600,"p":5,"o":9}\n')
    for name, order in (("a", (part, full)), ("b", (full, part))):
        for path in order:
            ingested(tmp_path / name, path, form="mapped", mapping=MAP)
        assert lake(tmp_path / name)["output_tokens"].to_list() == [9]
    manifest = pl.read_parquet(tmp_path / "a" / "lake" / "manifest" / "files.parquet")
    assert manifest.select("source_file", "read", "loaded", "duplicates").rows() == [
        ("full.jsonl", 1, 1, 0), ("part.jsonl", 1, 0, 1),
    ]  # fmt: skip


def test_attempts_of_one_call_are_numbered_over_files_and_midnight(tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_bytes(spend_row("a2", "L", 30) + spend_row("b1", "M", 5))
    second.write_bytes(spend_row("a1", "L", 0) + spend_row("a3", "L", 50, completion_tokens=7))
    for name, order in (("x", (first, second)), ("y", (second, first))):
        for path in order:
            ingested(tmp_path / name, path, form="litellm")
        rows = lake(tmp_path / name).filter(request_id="L").sort("attempt")
        assert rows.select("record_id", "attempt").rows() == [("a1", 1), ("a2", 2), ("a3", 3)]
    ingested(tmp_path / "z", first, second, form="litellm")
    whole = lake(tmp_path / "z")
    assert whole.drop("tenant").equals(lake(tmp_path / "x").drop("tenant"))


def test_bad_files_in_a_folder_are_listed_and_the_rest_loads(tmp_path, home):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(lines(0, 5))
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "other.jsonl").write_bytes(b'{"hello": 1}\n')
    (folder / "LICENSE").write_bytes(b"Some words\nand more words, of no log\n")
    (folder / ".hidden").write_bytes(lines(5, 9))
    result = ingested(home, folder, form="mapped", mapping=MAP)
    states = {file.source_file: file.status for file in result.files}
    assert states == {"good.jsonl": "complete", "empty.jsonl": "empty", "other.jsonl": "refused", "LICENSE": "refused"}
    assert counts(result) == (5, 5, 0, 0)


def test_named_files_that_cannot_be_used_say_so_in_one_line(tmp_path, home):
    empty, other = tmp_path / "empty.jsonl", tmp_path / "other.jsonl"
    empty.write_bytes(b"\n\n")
    other.write_bytes(spend_row("a", "L", 1))
    for path, words in (
        (tmp_path / "none.jsonl", "no such file"),
        (empty, "is empty"),
        (other, "is not in format mooncake; it looks like litellm; use --format litellm"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            ingested(home, path, form="mooncake")
        assert "\n" not in str(caught.value)
    assert not (home / "lake" / "manifest").exists()


def test_a_folder_without_anything_usable_is_an_error(tmp_path, home):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"hello": 1}\n')
    with pytest.raises(InputError, match="no record could be read"):
        ingested(home, folder, form="mapped", mapping=MAP)


def test_rejects_keep_position_and_hash_but_no_text(tmp_path, home):
    text = "words-of-a-prompt"
    log = tmp_path / "a.jsonl"
    log.write_bytes(lines(0, 3, prompt=text) + b'{"id":"x","t":"never","prompt":"%s"}\n' % text.encode() + lines(3, 4))
    assert counts(ingested(home, log, form="mapped", mapping=MAP)) == (5, 4, 0, 1)
    found = rejects(home)
    assert found.select("source_position", "reason").row(0) == (len(lines(0, 3, prompt=text)), "not a time")
    assert len(found["excerpt_sha256"][0]) == 64
    for path in home.rglob("*"):
        if path.is_file():
            assert text.encode() not in path.read_bytes()
    assert text not in lake(home).write_json()


def test_tenants_are_hashed_under_the_key_of_the_home(tmp_path):
    log = tmp_path / "a.jsonl"
    log.write_bytes(spend_row("a", "L", 1, team_id="team-blue"))
    ingested(tmp_path / "one", log, form="litellm")
    ingested(tmp_path / "two", log, form="litellm")
    ingested(tmp_path / "plain", log, form="litellm", privacy="plain")
    one, two, plain = (lake(tmp_path / name)["tenant"][0] for name in ("one", "two", "plain"))
    assert plain == "team-blue"
    assert one != two
    assert len(one) == 16
    assert (tmp_path / "one" / "tenant.key").stat().st_mode & 0o777 == 0o600
    again = ingested(tmp_path / "one", log, form="litellm", privacy="plain")
    assert (counts(again), lake(tmp_path / "one")["tenant"].to_list()) == ((1, 1, 0, 0), ["team-blue"])


def test_parquet_of_the_lake_says_its_schema(tmp_path, home):
    log = tmp_path / "a.jsonl"
    log.write_bytes(lines(0, 3))
    ingested(home, log, form="mapped", mapping=MAP)
    for path in (home / "lake").rglob("*.parquet"):
        assert pl.read_parquet_metadata(path)["kvledger_schema"] == "1"


def test_own_rows_go_round(tmp_path):
    log = tmp_path / "a.jsonl"
    log.write_bytes(lines(0, 40))
    ingested(tmp_path / "one", log, form="mapped", mapping=MAP)
    rows = lake(tmp_path / "one")
    rows.write_parquet(tmp_path / "rows.parquet")
    rows.drop("prefix_block_ids", "flags").write_csv(tmp_path / "rows.csv")
    rows.write_ndjson(tmp_path / "rows.jsonl")
    for n, name in enumerate(("rows.parquet", "rows.csv", "rows.jsonl")):
        home = tmp_path / f"home{n}"
        assert counts(ingested(home, tmp_path / name, form="kvledger")) == (40, 40, 0, 0)
        columns = ["request_id", "attempt", "arrived_at", "model", "prompt_tokens", "output_tokens", "status"]
        assert lake(home).select(columns).equals(rows.select(columns))
