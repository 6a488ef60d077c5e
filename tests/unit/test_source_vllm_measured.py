"""Measured vLLM runs: two clocks, ids used again, stamps that are not known, and the figures both runs are known by."""

from __future__ import annotations

import json

import polars as pl
import pytest
from ingesting import counts, ingested, lake

from transforms.batches import Batch, Head
from transforms.fleet import Source
from transforms.sources import vllm_measured

SOURCE = Source("vllm-measured", "x")
RUNS = "traces/vllm-measured/{}/Llama-3.1-8B/requests.jsonl"


def line(number, arrival, queued, *, first=0.5, last=1.5, **more):
    return {
        "request_id": f"bench-{number}", "input_toks": 100, "output_toks": 10, "arrival_time": arrival,
        "queued_ts": queued, "scheduled_ts": queued and queued + 0.25, "first_token_ts": queued and queued + first,
        "last_token_ts": queued and queued + last, **more,
    }  # fmt: skip


def parse(*records):
    lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
    parsed = vllm_measured.canonicalise(Batch("a", lines, list(range(len(lines)))), SOURCE)
    assert len(parsed.rows) + len(parsed.rejects) == len(lines)
    return parsed


def test_the_engine_clock_is_brought_to_the_epoch_by_the_least_delay():
    rows = parse(line(0, 1000.2, 5.0), line(1, 1001.0, 6.0), line(2, 1002.1, 7.0)).rows
    assert rows["arrived_at"].to_list() == [1_000_000_000, 1_001_000_000, 1_002_000_000]
    assert rows["queue_s"].to_list() == [0.25, 0.25, 0.25]
    assert rows["ttft_s"].to_list() == [0.5, 0.5, 0.5]
    assert rows["e2e_s"].to_list() == [1.5, 1.5, 1.5]


def test_what_is_not_known_stays_unknown():
    rows = parse(line(0, 1000.0, 5.0), line(1, 1001.5, None), line(2, None, 7.0, first_token_ts=None)).rows
    assert rows["arrived_at"].to_list() == [1_000_000_000, 1_001_500_000, 1_002_000_000]
    assert rows["e2e_s"].to_list() == [1.5, None, 1.5]
    assert rows["ttft_s"].to_list() == [0.5, None, None]


def test_an_id_is_its_run_s_own():
    early, late = parse(line(0, 1000.0, 5.0)).rows, parse(line(0, 2000.0, 5.0)).rows
    assert early["request_id"].to_list() == ["bench-0@1000000000"]
    assert late["request_id"].to_list() != early["request_id"].to_list()


def test_records_that_cannot_be_used_are_rejected_with_their_place():
    soon = line(1, 1000.0, 6.0) | {"queued_ts": "soon"}
    parsed = parse(line(0, 1000.0, 5.0), b"{", soon, line(2, 1e18, None), line(3, 1000.0, 5.0, input_toks=1.5))
    assert [(r.position, r.reason) for r in parsed.rejects] == [
        (1, "not JSON"), (2, "not a number"), (3, "time out of range"), (4, "not a whole number"),
    ]  # fmt: skip


def test_recognise_is_narrow():
    assert vllm_measured.recognise(Head("a", [line(0, 1.0, 1.0)]))
    assert vllm_measured.recognise(Head("a", [{"request_id": "a", "arrival_time": 1.0}])) is None
    assert vllm_measured.recognise(Head("a", columns=["t", "running", "waiting"])) is None


@pytest.mark.shared
@pytest.mark.parametrize("form", ["vllm-measured", "auto"])
def test_both_runs_keep_their_rows_beside_each_other(shared_dir, tmp_path, form):
    result = ingested(tmp_path, shared_dir / "traces/vllm-measured", form=form)
    assert counts(result) == (600, 600, 0, 0)
    rows = lake(tmp_path)
    assert set(rows["status"]) == {"ok"}
    logged = pl.concat(pl.read_ndjson(shared_dir / RUNS.format(gpu)) for gpu in TRUTH)
    both = rows.with_columns(request_id=pl.col("request_id").str.extract("^(.*)@"), run=pl.col("arrived_at").dt.month())
    logged = logged.with_columns(run=pl.from_epoch((pl.col("arrival_time") * 1e6).cast(pl.Int64), "us").dt.month())
    late = both.join(logged, on=("request_id", "run")).select(
        pl.col("arrival_time") - pl.col("arrived_at").dt.epoch("us") / 1e6
    )
    assert len(late) == 600
    assert late.to_series().min() == pytest.approx(0, abs=2e-6)
    assert late.to_series().max() < 0.25


# Source: spec/engine_replay.md, "Truth it is held to".
TRUTH = {
    "RTX4090": {
        "ttft_mean": 65.46, "ttft_p50": 60.11, "ttft_p90": 121.1, "ttft_p99": 137.4, "tpot_mean": 0.0324,
        "tpot_p99": 0.0560, "e2e_mean": 86.58, "e2e_p99": 153.6, "prefill_mean": 0.266,
    },
    "RTXPRO6000": {
        "ttft_mean": 7.10, "ttft_p99": 19.76, "tpot_mean": 0.0325, "tpot_p99": 0.0373, "e2e_mean": 28.20,
        "e2e_p99": 37.64, "prefill_mean": 0.122,
    },
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("gpu", TRUTH)
def test_the_figures_of_the_runs_come_out(shared_dir, tmp_path, gpu):
    ingested(tmp_path, shared_dir / RUNS.format(gpu), form="vllm-measured")
    rows = lake(tmp_path).with_columns(
        tpot_s=(pl.col("e2e_s") - pl.col("ttft_s")) / (pl.col("output_tokens") - 1),
        prefill_s=pl.col("ttft_s") - pl.col("queue_s"),
    )
    for name, wanted in TRUTH[gpu].items():
        measure, _, stat = name.partition("_")
        values = rows[f"{measure}_s"]
        found = values.mean() if stat == "mean" else values.quantile(int(stat[1:]) / 100, "linear")
        assert found == pytest.approx(wanted, rel=0.005), name
