"""GuideLLM's reports of every schema: stamps, counts, requests that were cut off, warm-up, models."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

from transforms.batches import Batch, Head
from transforms.errors import InputError
from transforms.fleet import Source
from transforms.sources import guidellm

T0 = 1_772_359_200.0
T0_US = 1_772_359_200_000_000


def v2(name="r", start=T0, **more):
    """A request of schema 2 (0.6 to 0.8) and of schema 1 from 0.4 on."""
    timings = {
        "targeted_start": start - 1, "queued": start - 2, "dequeued": start - 1.5, "resolve_start": start - 0.01,
        "request_start": start, "first_token_iteration": start + 0.25, "last_token_iteration": start + 2,
        "request_end": start + 2.5, "resolve_end": start + 2.6, "token_iterations": 8, "finalized": start + 3,
    }  # fmt: skip
    info = {"request_id": name, "conversation_id": "c", "turn_index": 1, "status": "completed", "timings": timings}
    info["timings"] |= more.pop("timings", {})
    body = {"model": "served", "max_tokens": 99, "messages": "SECRET"}
    return {
        "type_": "generative_request_stats", "request_id": name, "response_id": "x", "output": "SECRET",
        "request_args": json.dumps({"stream": True, "body": body}),
        "info": info | more.pop("info", {}), "input_metrics": {"text_tokens": 100, "cached_tokens": 64},
        "output_metrics": {"text_tokens": 8}, "time_to_first_token_ms": 250.0, **more,
    }  # fmt: skip


def report(*groups, version=2, **more):
    benchmarks = [
        {"type_": "generative_benchmark", "config": {"backend": {"model": "configured"}}, "metrics": {},
         "requests": {"successful": [], "incomplete": [], "errored": [], "total": None, **group}, **more}
        for group in groups
    ]  # fmt: skip
    return {"metadata": {"version": version, "guidellm_version": "0.8.1"}, "config": {}, "benchmarks": benchmarks}


def parse(document):
    line = document if isinstance(document, bytes) else json.dumps(document).encode()
    return guidellm.canonicalise(Batch("a", [line], [0]), Source("guidellm", "x"))


def test_a_request_of_schema_2():
    row = parse(report({"successful": [v2()]})).rows.row(0, named=True)
    assert (row["arrived_at"], row["ended_at"]) == (T0_US, T0_US + 2_500_000)
    assert (row["request_id"], row["session_id"], row["turn"], row["model"]) == ("r", "c", 2, "served")
    assert (row["prompt_tokens"], row["cached_prompt_tokens"], row["output_tokens"]) == (100, 64, 8)
    assert (row["ttft_s"], row["status"], row["requested_output_tokens"]) == (0.25, "ok", 99)
    assert "SECRET" not in str(row)


def test_without_the_computed_first_token_its_stamp_is_taken():
    for stamps in ({}, {"first_token_iteration": None, "first_iteration": T0 + 0.25}):
        rows = parse(report({"successful": [v2(time_to_first_token_ms=None, timings=stamps)]})).rows
        assert rows["ttft_s"].to_list() == [0.25]


def test_a_request_of_schema_1_with_its_scheduler_beside_it():
    old = {
        "request_id": "o", "request_type": "chat_completions", "prompt": "SECRET", "output": "SECRET",
        "request_args": {"model": "served"}, "prompt_tokens": 50, "output_tokens": 7,
        "scheduler_info": {
            "scheduler_timings": {"resolve_start": T0 - 0.5, "resolve_end": T0 + 4},
            "request_timings": {"request_start": T0, "first_iteration": T0 + 0.5, "request_end": T0 + 3},
        },
    }  # fmt: skip
    row = parse(report({"successful": [old]}, version=1)).rows.row(0, named=True)
    assert (row["arrived_at"], row["ended_at"], row["ttft_s"]) == (T0_US, T0_US + 3_000_000, 0.5)
    assert (row["prompt_tokens"], row["output_tokens"], row["model"]) == (50, 7, "served")
    assert "SECRET" not in str(row)


def test_a_report_from_before_schemas_had_numbers():
    first = {
        "type_": "generative_text_response", "request_id": "a", "prompt": "SECRET", "output": "SECRET",
        "prompt_tokens": 50, "output_tokens": 7, "start_time": T0, "end_time": T0 + 3, "first_token_time": T0 + 0.5,
        "last_token_time": T0 + 2.9, "scheduler_info": {"errored": False},
    }  # fmt: skip
    failed = {
        **first,
        "request_id": "b",
        "error": "HTTP 429: slow down",
        "output_tokens": None,
        "first_token_time": None,
    }
    old = {"benchmarks": [{"requests": {"successful": [first], "incomplete": [], "errored": [failed]},
                           "worker": {"backend_type": "openai_http", "backend_model": "m"}}]}  # fmt: skip
    rows = parse(old).rows
    assert rows["status"].to_list() == ["ok", "rejected"]
    assert rows["model"].to_list() == ["m", "m"]
    assert rows["ttft_s"].to_list() == [0.5, None]
    assert rows["output_tokens"].to_list() == [7, None]
    assert "SECRET" not in str(rows.to_dicts())


def test_requests_cut_off_are_aborted_and_those_never_sent_are_none():
    cut = v2("cut", timings={"request_end": None}, time_to_first_token_ms=None, output_metrics={"text_tokens": 3})
    nothing = v2("nothing", output_metrics={"text_tokens": 0}, time_to_first_token_ms=None)
    unsent = v2("unsent", timings={"request_start": None, "resolve_start": None})
    parsed = parse(report({"incomplete": [cut, nothing, unsent]}))
    assert parsed.ignored == 1
    assert parsed.rows["status"].to_list() == ["aborted", "aborted"]
    assert parsed.rows["output_tokens"].to_list() == [3, None]
    assert parsed.rows["flags"].to_list() == [["output_partial"], []]
    assert parsed.rows["ended_at"].to_list() == [T0_US + 2_600_000, T0_US + 2_500_000]


@pytest.mark.parametrize(
    ("told", "status"),
    [("Client error '429 Too Many Requests'", "rejected"), ("ReadTimeout: x", "timeout"), ("500 SECRET", "error"),
     (None, "error")],
)  # fmt: skip
def test_errors_are_classed_and_not_kept(told, status):
    rows = parse(report({"errored": [v2(info={"error": told, "status": "errored"})]})).rows
    assert rows["status"].to_list() == [status]
    assert "SECRET" not in str(rows.to_dicts())


def test_requests_before_the_measured_span_are_warm_up():
    measured = {"scheduler_metrics": {"measure_start_time": T0 + 5}}
    rows = parse(report({"successful": [v2("w", T0), v2("m", T0 + 5)]}, **measured)).rows
    assert rows["flags"].to_list() == [["synthetic"], []]


def test_the_model_comes_from_the_benchmark_where_the_request_does_not_name_it():
    assert parse(report({"successful": [v2(request_args=None)]})).rows["model"].to_list() == ["configured"]
    named = report({"successful": [v2(request_args=None)]}, config=None) | {"args": {"model": "asked"}}
    assert parse(named).rows["model"].to_list() == ["asked"]


def test_an_id_used_again_by_a_later_benchmark_is_another_request():
    rows = parse(report({"successful": [v2("r", T0)]}, {"successful": [v2("r", T0 + 60)]})).rows
    assert rows["request_id"].to_list() == ["r", f"r@{T0_US + 60_000_000}"]


def test_values_that_cannot_be_used_reject_their_request_alone():
    odd = v2("odd", input_metrics={"text_tokens": 1.5})
    parsed = parse(report({"successful": [v2(), odd, "x", v2("t", timings={"request_start": "soon"})]}))
    assert len(parsed.rows) == 1
    assert [r.reason for r in parsed.rejects] == ["not a whole number", "not a time"]
    assert parsed.ignored == 1


@pytest.mark.parametrize("odd", [{"requests": []}, {"requests": {"successful": {}}}, [], None, {"requests": None}])
def test_a_report_without_requests_is_refused(odd):
    document = {"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [odd]}
    with pytest.raises(InputError, match="distributions only"):
        parse(document)


def test_a_report_is_recognised_whole_or_on_one_line(tmp_path):
    for name, indent in (("a.json", None), ("b.json", 2)):
        path = tmp_path / name
        path.write_text(json.dumps(report({"successful": [v2()], "errored": [v2("e", T0 + 1)]}), indent=indent))
        for form in ("guidellm", "auto"):
            assert counts(ingested(tmp_path / f"{name}-{form}", path, form=form)) == (2, 2, 0, 0)
            rows = lake(tmp_path / f"{name}-{form}")
            assert rows.select("e2e_s", "ttft_s", "status").rows() == [(2.5, 0.25, "ok"), (2.5, 0.25, "error")]


def test_recognise_is_narrow():
    assert guidellm.recognise(Head("a", [report({"successful": [v2()]})]))
    assert guidellm.recognise(Head("a", [{"benchmarks": [{"requests": {"successful": []}}]}]))
    assert guidellm.recognise(Head("a", [{"benchmarks": []}])) is None
    assert guidellm.recognise(Head("a", [{"benchmarks": [{"requests": [1]}]}])) is None
