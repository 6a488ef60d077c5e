"""inference-perf's lifecycle report: two kinds of clocks, old and new places of counts, failures."""

from __future__ import annotations

import json

import pytest
from ingesting import counts, ingested, lake

from transforms.batches import Batch, Head
from transforms.errors import InputError
from transforms.fleet import Source
from transforms.sources import inference_perf

EPOCH_S = 1_772_359_200.0


def request(start_s=EPOCH_S, **more):
    body = {"model": "m", "max_tokens": 64, "prompt": "SECRET"}
    return {
        "start_time": start_s, "end_time": start_s + 2.5, "request": json.dumps(body), "response": "SECRET",
        "info": {
            "request_metrics": {"text": {"input_tokens": 100}},
            "response_metrics": {
                "output_tokens": 8, "output_token_times": [start_s + 0.5, start_s + 0.7], "server_usage": None,
                "chunk_times": [start_s + 0.4], "response_chunks": ["SECRET"],
            },
            "extra_info": {}, "lora_adapter": None, "labels": {}, "input_tokens": 100,
        },
        "error": None, **more,
    }  # fmt: skip


def parse(*requests, **settings):
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in requests]
    batch = Batch("a", lines, list(range(len(lines))))
    parsed = inference_perf.canonicalise(batch, Source("inference-perf", "x", **settings))
    assert len(parsed.rows) + len(parsed.rejects) == len(lines)
    return parsed


def test_a_request_with_epoch_stamps():
    rows = parse(request(), request(EPOCH_S + 1.5)).rows
    assert rows["arrived_at"].to_list() == [1_772_359_200_000_000, 1_772_359_201_500_000]
    names = ("prompt_tokens", "output_tokens", "ttft_s", "e2e_s", "status", "model", "requested_output_tokens")
    assert rows.select(names).row(0) == (100, 8, 0.5, 2.5, "ok", "m", 64)
    assert rows["flags"].to_list() == [[], []]
    assert "SECRET" not in str(rows.to_dicts())


def test_stamps_of_a_counter_count_from_the_first_request():
    rows = parse(request(5000.25), request(5000.0)).rows
    assert rows["arrived_at"].diff()[1] == -250_000
    assert rows["flags"].to_list() == [["assumed_origin"]] * 2
    placed = parse(request(5000.25), request(5000.0), origin="2026-03-01T10:00:00Z").rows
    assert placed["arrived_at"].to_list() == [1_772_359_200_250_000, 1_772_359_200_000_000]
    assert placed["flags"].to_list() == [[], []]


def test_counts_of_the_server_go_before_the_client_s():
    usage = {
        "prompt_tokens": 107, "completion_tokens": 11, "prompt_tokens_details": {"cached_tokens": 96},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip
    one = request()
    one["info"]["response_metrics"]["server_usage"] = usage
    names = ("prompt_tokens", "cached_prompt_tokens", "output_tokens", "reasoning_tokens")
    assert parse(one).rows.select(names).row(0) == (107, 96, 11, 3)


def test_reports_of_before_the_metrics_were_nested():
    old = request(info={"input_tokens": 100, "output_tokens": 8, "output_token_times": [EPOCH_S + 0.25]})
    assert parse(old).rows.select("prompt_tokens", "output_tokens", "ttft_s").row(0) == (100, 8, 0.25)


def test_a_response_that_did_not_stream_has_no_first_token():
    one = request()
    one["info"]["response_metrics"] = {"output_tokens": 8}
    assert parse(one).rows.select("ttft_s", "e2e_s").row(0) == (None, 2.5)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"error_type": "429 Too Many Requests", "error_msg": "SECRET"}, "rejected"),
        ({"error_type": "TimeoutError", "error_msg": ""}, "timeout"),
        ({"error_type": "500 Internal Server Error", "error_msg": "SECRET"}, "error"),
        ({"error_type": "ClientOSError", "error_msg": "Server disconnected"}, "aborted"),
    ],
)
def test_failures_by_code_and_class(error, status):
    failed = request(error=error, info={"input_tokens": 100, "response_metrics": {"output_tokens": 0}})
    rows = parse(failed).rows
    assert rows.select("status", "prompt_tokens", "output_tokens").row(0) == (status, 100, None)
    assert "SECRET" not in str(rows.to_dicts())


def test_requests_that_cannot_be_used_are_rejected():
    parsed = parse(b"{", request(start_time=None), request(start_time="soon"), request(start_time=1e18),
                   request(info={"input_tokens": True}))  # fmt: skip
    assert [r.reason for r in sorted(parsed.rejects, key=lambda r: r.position)] == [
        "not JSON", "no start of the request", "not a number", "time out of range", "not a number",
    ]  # fmt: skip


def test_an_array_in_a_file_is_recognised_and_totals_are_refused(tmp_path):
    path = tmp_path / "per_request_lifecycle_metrics.json"
    path.write_text(json.dumps([request(), request(EPOCH_S + 1)], indent=2))
    for form in ("inference-perf", "auto"):
        assert counts(ingested(tmp_path / form, path, form=form)) == (2, 2, 0, 0)
        assert lake(tmp_path / form)["source"].to_list() == ["inference-perf"] * 2
    totals = tmp_path / "summary_lifecycle_metrics.json"
    totals.write_text(json.dumps({"load_summary": {"count": 2}, "successes": {"count": 2}, "failures": {"count": 0}}))
    for form in ("inference-perf", "auto"):
        with pytest.raises(InputError, match="per_request"):
            ingested(tmp_path / f"no-{form}", totals, form=form)


def test_recognise_is_narrow():
    assert inference_perf.recognise(Head("a", [request()]))
    assert inference_perf.recognise(Head("a", [{"start_time": 1, "end_time": 2, "results": []}])) is None
