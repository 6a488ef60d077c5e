"""The shared cases of litellm, mooncake, mapped and the flat formats, each with what EXPECTED.md says must come out."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from ingesting import counts, ingested, lake, rejects

from transforms.errors import InputError

pytestmark = pytest.mark.shared
TEN = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture
def case(shared_dir, tmp_path):
    """Ingest the case of that number, through its mapping where it has one; gives result and rows by file position."""
    folder = shared_dir / "cases" / "logs"

    def run(number, form, name=None, **settings):
        path = folder / name if name else next(folder.glob(f"{number}-*"))
        mapping = folder / "maps" / f"{number}.toml" if form == "mapped" else None
        result = ingested(tmp_path / "home", path, form=form, mapping=mapping, **settings)
        return result, lake(tmp_path / "home").sort("source_file", "source_position")

    return run


def generated(shared_dir, tmp_path, number):
    script = next((shared_dir / "cases" / "logs").glob(f"{number}-*.gen.py"))
    path = tmp_path / f"{number}.jsonl"
    path.write_bytes(subprocess.run([sys.executable, script], capture_output=True, check=True).stdout)
    return path


def test_17_cached_above_prompt_is_clamped(case):
    _, rows = case("17", "mapped")
    assert rows.select("prompt_tokens", "cached_prompt_tokens", "output_tokens").row(0) == (100, 100, 1)
    assert rows["flags"].to_list() == [["cached_clamped"]]


def test_22_retries_are_attempts_of_one_request(case):
    result, rows = case("22", "litellm")
    assert counts(result) == (3, 3, 0, 0)
    assert rows["request_id"].unique().to_list() == ["L1"]
    assert rows["attempt"].to_list() == [1, 2, 3]
    assert rows["status"].to_list() == ["rejected", "timeout", "ok"]
    assert rows["arrived_at"].to_list()[0] == TEN
    assert rows["e2e_s"].to_list() == [1.0, 2.0, 2.0]
    assert rows["prompt_tokens"].to_list() == [None, None, 10]


def test_24_gateway_cache_hit_is_text(case):
    _, rows = case("24", "litellm")
    assert rows["served_by"].to_list() == ["backend", "backend", "gateway_cache", "backend"]


def test_25_batch_row_is_an_aggregate(case):
    result, rows = case("25", "litellm")
    assert counts(result) == (1, 1, 0, 0)
    assert rows.select("operation", "prompt_tokens", "output_tokens").row(0) == ("batch", 31_493_594, 19_786_241)
    assert "aggregate" in rows["flags"][0]


def test_26_call_types(case):
    _, rows = case("26", "litellm")
    assert rows["operation"].to_list() == ["chat", "embedding", "moderation"]
    assert rows["output_tokens"].to_list() == [20, 0, None]


def test_28_one_call_logged_on_two_paths_is_one(case):
    result, rows = case("28", "litellm")
    assert counts(result) == (2, 1, 1, 0)
    assert rows.select("request_id", "record_id", "attempt").row(0) == ("L9", "resp_1", 1)


def test_29_spend_log_stamps_are_utc_wherever_it_is_read(case, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    _, rows = case("29", "litellm")
    assert rows["arrived_at"].to_list() == [TEN]


def test_36_epoch_units(case):
    _, rows = case("36", "mapped")
    assert rows["arrived_at"].to_list() == [TEN] * 8
    assert [n for n, flags in enumerate(rows["flags"]) if "mixed_time_units" in flags] == [1, 2, 3]


def test_37_the_hour_that_happens_twice(case):
    _, rows = case("37", "mapped", timezone="Europe/Berlin", file_order="arrival")
    assert [at.strftime("%H:%M:%S") for at in rows["arrived_at"]] == [
        "00:30:00", "00:59:59", "01:00:00", "01:30:00", "02:00:00",
    ]  # fmt: skip


def test_37_without_order_the_hour_is_marked_ambiguous(case):
    _, rows = case("37", "mapped", timezone="Europe/Berlin")
    assert ["dst_ambiguous" in flags for flags in rows["flags"]] == [True, True, True, True, False]


def test_37_without_a_zone_the_file_is_refused(case):
    with pytest.raises(InputError, match="no zone; say which with --timezone"):
        case("37", "mapped")


def test_40_first_token_at_the_end_is_no_first_token(case):
    _, rows = case("40", "litellm")
    assert rows.select("ttft_s", "e2e_s").row(0) == (None, 2.0)


def test_42_ticks_of_100_ns(case):
    _, rows = case("42", "azure", timezone="UTC")
    assert [at.isoformat() for at in rows["arrived_at"]] == [
        "2023-11-16T18:15:46.680590+00:00", "2023-11-16T18:15:50.995169+00:00",
    ]  # fmt: skip


def test_44_burstgpt_in_both_editions(case):
    _, rows = case("44", "burstgpt", origin="2026-03-01T00:00:00Z")
    six = rows.filter(source_file="burst6.csv")
    assert six.select("prompt_tokens", "output_tokens", "status").rows() == [(472, 18, "ok"), (417, None, "error")]
    eight = rows.filter(source_file="burst8.csv")
    assert eight.select("session_id", "e2e_s").rows() == [("77", 2.5), (None, 1.0)]


def test_45_mooncake_counts_in_milliseconds(case):
    _, rows = case("45", "mooncake", "45-trace-time-units/mooncake_ms.jsonl")
    first, second = rows["arrived_at"]
    assert (second - first).total_seconds() == 3.0


def test_46_block_ids_that_do_not_fit_are_dropped(case):
    _, rows = case("46", "mooncake", block_tokens=512)
    assert rows["prefix_block_ids"].to_list() == [[0, 1], None]
    assert rows["prompt_tokens"].to_list() == [600, 20]
    assert "hash_block_mismatch" in rows["flags"][1]


def test_50_unfinished_last_line_is_left_for_the_next_run(case, tmp_path):
    result, rows = case("50", "mapped")
    assert (result.files[0].status, counts(result), result.files[0].ignored) == ("growing", (2, 2, 0, 0), 1)
    assert rows["prompt_tokens"].to_list() == [1, 2]


def test_52_nul_bytes_before_the_first_line(case):
    result, rows = case("52", "mapped")
    assert counts(result) == (2, 2, 0, 0)
    assert rows["prompt_tokens"].to_list() == [1, 2]


def test_54_rotated_copies_and_a_cut_off_archive(case):
    result, rows = case("54", "mapped", "54-rotated")
    assert sorted(rows["request_id"].to_list())[:3] == ["a", "b", "c"]
    assert rows["request_id"].is_unique().all()
    states = {file.source_file: file.status for file in result.files}
    assert states["app.jsonl.2.gz"] == "truncated"
    assert set(states.values()) == {"complete", "truncated"}
    assert all(file.read == file.loaded + file.duplicates + file.rejected for file in result.files)


def test_56_key_first_seen_late(shared_dir, tmp_path):
    mapping = shared_dir / "cases" / "logs" / "maps" / "56.toml"
    ingested(tmp_path / "home", generated(shared_dir, tmp_path, "56"), form="mapped", mapping=mapping)
    rows = lake(tmp_path / "home")
    assert rows.height == 20_481
    assert rows.filter(request_id="20480")["cached_prompt_tokens"].to_list() == [7]
    assert rows["cached_prompt_tokens"].null_count() == 20_480


def test_57_type_that_changes_late(shared_dir, tmp_path):
    mapping = shared_dir / "cases" / "logs" / "maps" / "57.toml"
    result = ingested(tmp_path / "home", generated(shared_dir, tmp_path, "57"), form="mapped", mapping=mapping)
    assert counts(result) == (20_482, 20_481, 0, 1)
    assert lake(tmp_path / "home").filter(request_id="20480")["e2e_s"].to_list() == [1.5]
    assert rejects(tmp_path / "home")["reason"].to_list() == ["not a number"]


def test_58_numbers_of_every_kind(case, tmp_path):
    result, rows = case("58", "mapped")
    assert rows["prompt_tokens"].to_list() == [12, 13, 14, 100, 1234, None, None]
    assert rows["flags"].to_list()[6] == ["negative_value"]
    assert counts(result) == (9, 7, 0, 2)
    assert sorted(rejects(tmp_path / "home")["reason"].to_list()) == ["not a number", "not a whole number"]


def test_60_delimiter_is_never_guessed_from_values(case):
    _, rows = case("60", "mapped")
    assert rows["model"].to_list() == ["v0", "a;b"]


def test_61_last_of_two_equal_keys_wins(case):
    _, rows = case("61", "mapped")
    assert rows.select("ttft_s", "flags").row(0) == (4.9, ["dup_key"])


def test_62_bom_crlf_and_blank_lines(case):
    result, rows = case("62", "mapped")
    assert counts(result) == (2, 2, 0, 0)
    assert rows["prompt_tokens"].to_list() == [1, 2]


def test_64_integers_beyond_53_bits_stay_exact(case):
    _, rows = case("64", "mapped")
    assert rows["arrived_at"][0].isoformat() == "2025-10-07T05:00:07.532900+00:00"
    assert rows["prefix_block_ids"].to_list() == [[18_446_744_073_709_551_615], [1]]
    assert rows["flags"].to_list() == [[], ["float_precision"]]


def test_68_finish_reasons(case):
    _, rows = case("68", "mapped")
    assert rows["status"].to_list() == ["length"] * 4 + ["ok"] * 4 + ["aborted", "error", "ok"]
    assert rows["flags"].to_list()[10] == ["refusal"]


def test_69_native_tokens_of_openrouter(case):
    _, rows = case("69", "openrouter")
    assert rows.select("prompt_tokens", "output_tokens", "status", "ttft_s", "e2e_s").row(0) == (
        64, 98, "aborted", 1.016, 2.94,
    )  # fmt: skip


@pytest.mark.parametrize(("number", "words"), [("38", "no tokens and no times"), ("73", "no request times")])
def test_logs_that_cannot_serve_say_what_would(case, number, words):
    with pytest.raises(InputError, match=words):
        case(number, "auto")
