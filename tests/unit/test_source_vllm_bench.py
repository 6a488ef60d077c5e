"""Results of vLLM's benchmark: failed entries, appended runs, clocks, units, and results that cannot serve."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from ingesting import counts, ingested, lake

from flows.reading.look import look
from flows.reading.recognise import candidates
from flows.reading.rows import read_rows
from transforms.batches import Batch, Head
from transforms.errors import InputError
from transforms.fleet import Source
from transforms.sources import vllm_bench
from transforms.sources._benchmark import told_failure

SOURCE = Source("vllm-bench", "x", origin="2026-03-01T10:00:00Z")
ORIGIN = 1_772_359_200_000_000
TOTALS = {
    "date": "20260301-120010", "endpoint_type": "openai", "backend": "openai", "model_id": "m", "num_prompts": 2,
    "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": None, "duration": 10.0, "completed": 2, "failed": 0,
    "total_input_tokens": 30, "total_output_tokens": 9, "request_throughput": 0.2,
}  # fmt: skip


def run(**more):
    arrays = {
        "input_lens": [10, 20], "output_lens": [4, 5], "ttfts": [0.2, 0.4], "itls": [[0.1, 0.1, 0.1], [0.3]],
        "latencies": [0.5, 1.0], "start_times": [500.0, 501.5], "queue_times": [0.0, 7.0],
        "generated_texts": ["SECRET", "SECRET"], "errors": ["", ""],
    }  # fmt: skip
    made = {**TOTALS, **arrays, **more}
    return {name: value for name, value in made.items() if value is not ...}


def parse(*texts, source=SOURCE):
    lines = [text if isinstance(text, bytes) else json.dumps(text).encode() for text in texts]
    return vllm_bench.canonicalise(Batch("a", lines, list(range(len(lines)))), source)


def seconds_of(rows):
    return [(us - ORIGIN) / 1e6 for us in rows["arrived_at"]]


def test_a_run_is_one_row_a_prompt():
    rows = parse(run()).rows
    assert seconds_of(rows) == [0, 1.5]
    names = ("prompt_tokens", "output_tokens", "ttft_s", "e2e_s", "status", "model", "operation")
    assert rows.select(names).rows() == [
        (10, 4, 0.2, 0.5, "ok", "m", "chat"), (20, 5, 0.4, 1.0, "ok", "m", "chat"),
    ]  # fmt: skip
    assert rows["queue_s"].to_list() == [None, None]
    assert "SECRET" not in str(rows.to_dicts())


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ("HTTP 500", "error"), ("Internal Server Error", "error"), ("Too Many Requests", "rejected"),
        ("429", "rejected"), ("Gateway Timeout", "timeout"), ("Rate limit reached", "rejected"),
        ("Traceback (most recent call last):\n  await self._timeout()\naiohttp.ClientOSError: [Errno 104]", "error"),
        ("Traceback (most recent call last):\n  x\nTimeoutError", "timeout"),
        ("Traceback:\naiohttp.ServerDisconnectedError: Server disconnected", "aborted"),
        ("asyncio.CancelledError", "aborted"),
    ],
)  # fmt: skip
def test_a_failed_entry_is_classed_by_its_last_line_and_has_no_times(told, status):
    assert told_failure(told) == status
    rows = parse(run(errors=["", told], output_lens=[4, 0], ttfts=[0.2, 0.0], latencies=[0.5, 0.0])).rows
    assert rows.select("status", "prompt_tokens", "output_tokens", "ttft_s", "e2e_s").row(1) == (
        status, 20, None, None, None,
    )  # fmt: skip


def test_an_entry_of_zeros_without_a_word_has_failed_too():
    rows = parse(run(output_lens=[4, 0], ttfts=[0.2, 0.0], latencies=[0.5, 0.0], errors=["", None])).rows
    assert rows["status"].to_list() == ["ok", "error"]


def test_without_latencies_the_end_is_the_last_gap():
    rows = parse(run(latencies=...)).rows
    assert rows["e2e_s"].to_list() == [pytest.approx(0.5), pytest.approx(0.7)]


def test_queue_time_of_the_server_is_kept():
    assert parse(run(server_queue_times=[0.01, 0.02])).rows["queue_s"].to_list() == [0.01, 0.02]


def test_an_array_of_ms_is_told_by_the_run_s_own_mean():
    slow = {"ttfts": [200, 400], "itls": [[100] * 3, [300]], "latencies": [500, 1000]}
    for told in ({"mean_ttft_ms": 300.0}, {"median_ttft_ms": 300.0}, {"median_ttft": 0.3}, {"mean_e2el_ms": 750}):
        rows = parse(run(**slow, **told)).rows
        assert rows["ttft_s"].to_list() == [0.2, 0.4]
        assert rows["e2e_s"].to_list() == [0.5, 1.0]
        assert seconds_of(rows) == [0, 1.5]
    for told in ({"mean_ttft_ms": 300.0}, {"median_ttft": 0.3}, {}):
        assert parse(run(**told)).rows["ttft_s"].to_list() == [0.2, 0.4]


def test_a_setting_that_the_run_contradicts_is_doubted():
    wrong = Source("vllm-bench", "x", origin="2026-03-01T10:00:00Z", time_unit="ms")
    rows = parse(run(mean_ttft_ms=300.0), source=wrong).rows
    assert rows["ttft_s"].to_list() == [0.0002, 0.0004]
    assert rows["flags"].to_list() == [["time_unit_doubted"]] * 2


def test_appended_runs_begin_as_far_apart_as_they_ran():
    later = run(date="20260301-120310", duration=40.0, start_times=[9.0, 8.0])
    rows = parse(run(), later).rows
    assert seconds_of(rows) == [0, 1.5, 151, 150]
    undated = parse(run(date=...), run(date="yesterday")).rows
    assert seconds_of(undated) == [0, 1.5, 0, 1.5]


@pytest.mark.parametrize("joint", ["\n", "", "  ", "\r\n\r\n"])
@pytest.mark.parametrize("indent", [None, 2])
def test_runs_one_after_the_other_are_read_whatever_lies_between(tmp_path, joint, indent):
    path = tmp_path / "results.json"
    path.write_text(joint.join(json.dumps(run(model_id=name), indent=indent) for name in "abc"))
    assert list(candidates(look(path).head)) == ["vllm-bench"]
    reading = read_rows(path, SOURCE)
    assert sorted(reading.rows["model"]) == ["a", "a", "b", "b", "c", "c"]
    assert reading.rejects == []


def test_a_run_cut_off_behind_a_whole_one_is_a_reject():
    whole = json.dumps(run()).encode()
    parsed = parse(whole + whole[:200])
    assert len(parsed.rows) == 2
    assert [(r.position, r.reason) for r in parsed.rejects] == [(0, "not JSON")]


def test_under_a_time_zone_a_run_starts_its_duration_before_its_date():
    rows = parse(run(), source=Source("vllm-bench", "x", timezone="Europe/Berlin")).rows
    assert datetime.fromtimestamp(rows["arrived_at"][0] / 1e6, UTC) == datetime(2026, 3, 1, 11, tzinfo=UTC)
    assert rows["flags"].to_list() == [["arrival_from_date"]] * 2
    assert parse(run(), source=Source("vllm-bench", "x")).rows["flags"].to_list() == [["assumed_origin"]] * 2


def test_all_prompts_of_an_unlimited_rate_arrive_at_once():
    rows = parse(run(start_times=..., request_rate="inf")).rows
    assert seconds_of(rows) == [0, 0]
    assert rows["flags"].to_list() == [["assumed_arrival"]] * 2


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (TOTALS, "--save-detailed"),
        ({**TOTALS, "latencies": [1.0], "queue_times": [0.0]}, "--save-detailed"),
        (run(start_times=...), "no start_times"),
        (run(start_times=..., request_rate="inf", max_concurrency=4), "no start_times"),
    ],
)
def test_a_result_that_cannot_serve_is_refused_in_one_line(tmp_path, result, told):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    for form in ("vllm-bench", "auto"):
        with pytest.raises(InputError, match=told) as refused:
            ingested(tmp_path / form, path, form=form)
        assert "\n" not in str(refused.value)


def test_one_run_without_arrays_among_others_is_a_reject():
    parsed = parse(run(), TOTALS)
    assert [(r.position, r.reason) for r in parsed.rejects] == [(1, "a run without request arrays")]
    assert len(parsed.rows) == 2


def test_entries_and_runs_of_no_use_are_rejected():
    parsed = parse(run(ttfts=[True, 0.4]), run(errors=[""]), {"a": 1}, [1])
    assert len(parsed.rows) == 1
    assert sorted(r.reason for r in parsed.rejects) == [
        "no benchmark result", "not a JSON object", "not a number", "request arrays differ in length",
    ]  # fmt: skip


def test_pooling_runs_are_no_chat():
    pooling = run(output_lens=0, ttfts=..., itls=..., generated_texts=..., backend="openai-embeddings")
    rows = parse(pooling).rows
    assert rows.select("operation", "output_tokens", "e2e_s", "status").rows() == [
        ("embedding", None, 0.5, "ok"), ("embedding", None, 1.0, "ok"),
    ]  # fmt: skip
    assert parse({**pooling, "backend": "vllm-rerank"}).rows["operation"].to_list() == ["rerank"] * 2


def test_rows_are_told_apart_and_the_same_file_twice_counts_once(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(run()))
    (folder / "b.json").write_text(json.dumps(run()))
    assert counts(ingested(tmp_path / "home", folder, form="vllm-bench")) == (4, 2, 2, 0)
    assert len(lake(tmp_path / "home")) == 2


def test_recognise_is_narrow():
    assert vllm_bench.recognise(Head("a", [run()]))
    assert vllm_bench.recognise(Head("a", [TOTALS]))
    assert vllm_bench.recognise(Head("a", [{"duration": 1.0, "completed": 2}])) is None
    assert vllm_bench.recognise(Head("a", text=['{"a": 1'])) is None
    assert vllm_bench.recognise(Head("a", text=["num_prompts request_rate burstiness"])) is None
