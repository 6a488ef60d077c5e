"""`kvledger replay` and `kvledger calibrate` on two measured vLLM runs of 300 requests, their second half unseen."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.cli import main

RUNS = {
    "RTX4090": ("--gpu", "RTX-4090-24GB", "--max-num-seqs", "256", "--kv-blocks", "2588", "--max-model-len", "32768"),
    "RTXPRO6000": ("--gpu", "RTX-PRO-6000-96GB", "--max-num-seqs", "128"),
}
STAMPS = ("scheduled_ts", "first_token_ts", "last_token_ts")
Command = Callable[..., Any]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """A kvledger command run in this process: its JSON, or with `code` the line it fails with."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["kvledger", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert (ended.value.code or 0) == code, err
        if code:
            assert out == ""
            assert err.strip().count("\n") == 0
            return err
        return json.loads(out)

    return run


def engine(shared_dir: Path, name: str, form: str = "vllm-measured") -> list[str]:
    config = shared_dir / "traces/vllm-measured" / name / "Llama-3.1-8B/config.json"
    return ["--format", form, "--model", str(config), "--engine-version", "0.19.0", *RUNS[name],
            "--max-num-batched-tokens", "2048", "--json"]  # fmt: skip


def log_of(shared_dir: Path, name: str) -> list[dict[str, Any]]:
    path = shared_dir / "traces/vllm-measured" / name / "Llama-3.1-8B/requests.jsonl"
    return sorted(map(json.loads, path.read_text().splitlines()), key=lambda row: row["queued_ts"])


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def first_half(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The whole load with the times of the first half only."""
    kept = len(rows) // 2
    return [row if n < kept else row | dict.fromkeys(STAMPS) for n, row in enumerate(rows)]


def mean_tpot_s(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([(r["last_token_ts"] - r["first_token_ts"]) / (r["output_toks"] - 1) for r in rows]))


@pytest.mark.shared
@pytest.mark.parametrize("name", RUNS)
def test_a_fit_to_the_first_half_predicts_the_second(
    command: Command, shared_dir: Path, tmp_path: Path, name: str
) -> None:
    rows, fit = log_of(shared_dir, name), tmp_path / "fit.toml"
    half, whole = written(tmp_path / "half.jsonl", first_half(rows)), written(tmp_path / "whole.jsonl", rows)
    found = command("calibrate", half, *engine(shared_dir, name, "auto"), "--output", fit)
    assert found["provenance"] == "calibrated"
    assert (found["fit_requests"], found["holdout_requests"]) == (75, 75)
    assert found["holdout_error_ratio"]["tpot_s"] < 0.08
    assert found["holdout_error_ratio"]["e2e_s"] < 0.03
    assert tomllib.loads(fit.read_text())["sources"][0]["format"] == "vllm-measured"

    ending = ("--calibration", fit, "--results", tmp_path / "r.parquet", "--timeseries", tmp_path / "t.csv")
    replayed = command("replay", "--trace", whole, *engine(shared_dir, name), *ending)
    assert (replayed["requests"], replayed["completed"], replayed["rejected"]) == (300, 300, 0)
    assert (replayed["verdict"], replayed["provenance"]) == ("overloaded", "calibrated")
    assert 0 < replayed["kv_peak_ratio"] <= 1
    for measure in ("tpot", "ttft"):
        told = abs(found["holdout_error_ratio"][f"{measure}_s"])
        assert replayed[f"{measure}_error_ratio"] == pytest.approx(told, rel=1e-3)
    results = pl.read_parquet(tmp_path / "r.parquet")
    assert results.columns == ["request_id", "status", "queue_s", "prefill_s", "ttft_s", "tpot_s", "e2e_s",
                               "preemptions", "kv_time_byte_s"]  # fmt: skip
    shown = {row["request_id"]: row for row in results.iter_rows(named=True)}
    unseen = rows[150:]
    told = {
        "tpot_s": (mean_tpot_s(unseen), 0.03),
        "ttft_s": (np.mean([r["first_token_ts"] - r["queued_ts"] for r in unseen]), 0.06),
        "e2e_s": (np.mean([r["last_token_ts"] - r["queued_ts"] for r in unseen]), 0.03),
        "prefill_s": (np.mean([r["first_token_ts"] - r["scheduled_ts"] for r in unseen]), 0.20),
    }
    for measure, (truth, bound) in told.items():
        assert np.mean([shown[r["request_id"]][measure] for r in unseen]) == pytest.approx(truth, rel=bound), measure
    series = pl.read_csv(tmp_path / "t.csv")
    assert series.columns == ["t_s", "running", "waiting", "kv_used_ratio"]
    assert series["t_s"].to_list() == [float(n + 1) for n in range(len(series))]


@pytest.mark.shared
def test_the_same_log_gives_the_same_calibration_and_carries_over_to_another_gpu(
    command: Command, shared_dir: Path, tmp_path: Path
) -> None:
    fits = {name: tmp_path / f"{name}.toml" for name in RUNS}
    logs = {name: written(tmp_path / f"{name}.jsonl", log_of(shared_dir, name)) for name in RUNS}
    for name, fit in fits.items():
        command("calibrate", logs[name], *engine(shared_dir, name), "--output", fit)
    command("calibrate", logs["RTX4090"], *engine(shared_dir, "RTX4090"), "--output", tmp_path / "again.toml")
    assert (tmp_path / "again.toml").read_text() == fits["RTX4090"].read_text()
    for one, other in (("RTX4090", "RTXPRO6000"), ("RTXPRO6000", "RTX4090")):
        asked = ("replay", "--trace", logs[other], *engine(shared_dir, other), "--calibration", fits[one])
        line = command(*asked, code=2)
        assert "is a calibration of gpu RTX" in line
        assert "carry_calibration=true" in line
        found = command(*asked, "--set", "carry_calibration=true")
        assert found["provenance"] == "assumed"
        assert found["tpot_s"]["mean"] == pytest.approx(mean_tpot_s(log_of(shared_dir, other)), rel=0.15)


@pytest.mark.shared
def test_a_calibration_of_another_model_is_refused(command: Command, shared_dir: Path, tmp_path: Path) -> None:
    rows = log_of(shared_dir, "RTXPRO6000")
    log = written(tmp_path / "log.jsonl", rows)
    found = command("calibrate", log, *engine(shared_dir, "RTXPRO6000"), "--home", tmp_path / "home")
    assert found["output"].endswith("calibrations/meta-llama__Llama-3.1-8B--RTX-PRO-6000-96GB--tp1.toml")
    fit = Path(found["output"])
    other = [*engine(shared_dir, "RTXPRO6000"), "--model", "Qwen/Qwen3-8B", "--calibration", str(fit)]
    assert "is a calibration of model meta-llama/Llama-3.1-8B, not of Qwen/Qwen3-8B" in command(
        "replay", "--trace", log, *other, code=2
    )
    line = command(
        "replay", "--trace", log, *engine(shared_dir, "RTXPRO6000"), "--calibration", tmp_path / "none", code=2
    )
    assert "none does not exist" in line


@pytest.mark.shared
def test_a_fit_that_cannot_be_trusted_is_refused_with_the_reason(
    command: Command, shared_dir: Path, tmp_path: Path
) -> None:
    rows, out = log_of(shared_dir, "RTXPRO6000"), tmp_path / "fit.toml"
    asked = (*engine(shared_dir, "RTXPRO6000"), "--output", out)
    few = [row if n < 30 else row | dict.fromkeys(STAMPS) for n, row in enumerate(rows)]
    assert "too few points: 30 requests have times" in command(
        "calibrate", written(tmp_path / "few.jsonl", few), *asked, code=2
    )
    random = np.random.default_rng(0)
    noise = [
        row | {name: row["queued_ts"] + at * random.uniform(1, 60) for at, name in enumerate(STAMPS, 1)} for row in rows
    ]
    noise = [row | {"last_token_ts": row["first_token_ts"] + random.uniform(1, 200)} for row in noise]
    assert "cannot be trusted: off by" in command("calibrate", written(tmp_path / "noise.jsonl", noise), *asked, code=2)
    alone = [
        row | {"queued_ts": 60.0 * n, "arrival_time": 1.7e9 + 60.0 * n, "scheduled_ts": 60.0 * n,
               "first_token_ts": 60.0 * n + 0.05, "last_token_ts": 60.0 * n + 0.05 + 0.012 * row["output_toks"]}
        for n, row in enumerate(rows)
    ]  # fmt: skip
    assert "one regime only: 1 to 1 requests in flight" in command(
        "calibrate", written(tmp_path / "alone.jsonl", alone), *asked, code=2
    )
    assert not out.exists()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Mooncake's format: 200 requests, one each 100 ms."""
    rows = [
        {"timestamp": 100 * n, "input_length": 600 + n, "output_length": 20 + n % 7, "hash_ids": [0, n + 1]}
        for n in range(200)
    ]
    return written(tmp_path / "trace.jsonl", rows)


ASKED = ("--format", "mooncake", "--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100-SXM-80GB", "--json")


def test_settings_reach_the_engine_and_the_options(command: Command, trace: Path) -> None:
    plain = command("replay", "--trace", trace, *ASKED)
    assert (plain["completed"], plain["verdict"], plain["near_saturation"]) == (200, "stable", None)
    assert plain["ttft_all_s"] == plain["ttft_s"]
    assert 0 < plain["tpot_error_ratio"] < plain["ttft_error_ratio"] < 0.5  # of the catalog, on groups left out
    assert plain["kv_shared_time_byte_s"] < plain["kv_block_time_byte_s"]  # the first block is everybody's
    short = command("replay", "--trace", trace, *ASKED, "--set", "max_model_len=700")
    assert short["rejected_by_reason"] == {"prompt_too_long": 100}
    assert short["ttft_all_s"]["p90"] is None
    late = command("replay", "--trace", trace, *ASKED, "--set", "timeout_s=0.001")
    assert late["timed_out"] == 200
    tight = command("replay", "--trace", trace, *ASKED, "--kv-blocks", "60", "--set", "enable_prefix_caching=false")
    assert tight["kv_blocks"] == 60
    assert tight["kv_shared_time_byte_s"] == tight["kv_block_time_byte_s"]
    assert tight["kv_peak_ratio"] > plain["kv_peak_ratio"]
    ranks = command("replay", "--trace", trace, *ASKED, "--set", "data_parallel_size=2")
    pair = command("replay", "--trace", trace, *ASKED, "--replicas", "2")
    assert ranks["e2e_s"] == pytest.approx(pair["e2e_s"])
    assert ranks["paid_replica_s"] == pytest.approx(pair["paid_replica_s"] / 2)
    held = command("replay", "--trace", trace, *ASKED, "--kv-blocks", "10")
    assert held["rejected_by_reason"] == {"larger_than_pool": 200}


def test_the_closed_loop_and_the_sustainable_rate_stand_beside_the_open_loop(command: Command, trace: Path) -> None:
    found = command(
        "replay", "--trace", trace, *ASKED, "--concurrency", "1", "--concurrency", "8", "--sustainable-rate",
        "--set", "ttft_p95_s=0.2", "--set", "tpot_p95_s=0.02",
    )  # fmt: skip
    one, eight = found["closed_loop"]
    assert (one["concurrency_requests"], eight["concurrency_requests"]) == (1, 8)
    assert one["requests_per_s"] < eight["requests_per_s"]
    assert one["tpot_s"]["mean"] < eight["tpot_s"]["mean"]
    rate = found["sustainable"]
    assert 10 < rate["low_requests_per_s"] <= rate["high_requests_per_s"] * 1.05
    assert found["verdict"] == "stable"


def test_near_saturation_stand_intervals_over_where_the_trace_is_begun(command: Command, trace: Path) -> None:
    busy = ("replay", "--trace", trace, *ASKED, "--set", "max_num_seqs=1")
    found = command(*busy)
    near = found["near_saturation"]
    assert (near["replays"], sum(near["verdicts"].values())) == (5, 5)
    assert found["verdict"] in near["verdicts"]
    low, high = near["latencies"]["ttft_s"]["p95"]
    assert low <= found["ttft_s"]["p95"] <= high
    assert low < high


def test_a_busier_trace_is_made_of_whole_sessions_by_seed(command: Command, trace: Path) -> None:
    twice = command("replay", "--trace", trace, *ASKED, "--rate-scale", "2")
    assert twice["requests"] == 400
    half = command("replay", "--trace", trace, *ASKED, "--rate-scale", "0.5", "--set", "seed=3")
    again = command("replay", "--trace", trace, *ASKED, "--rate-scale", "0.5", "--set", "seed=3")
    assert 70 < half["requests"] < 130
    assert {**half, "wall_s": 0} == {**again, "wall_s": 0}


@pytest.mark.parametrize("name", ["replay", "whatif"])
def test_set_help_lists_the_keys_without_a_run(command: Command, name: str) -> None:
    kinds = command(name, "--set", "help", "--json")["settings"]
    assert kinds["max_num_seqs"] == "a whole number"
    assert kinds["router"].startswith("round_robin | ")


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (("--set", "max_num_seq=4"), "unknown key 'max_num_seq'; did you mean 'max_num_seqs'"),
        (("--set", "time_zone=UTC"), "did you mean 'timezone'"),
        (("--set", "timeout_s"), "must be key=value"),
        (("--set", "timeout_s=soon"), "must be a number"),
        (("--set", "router=fastest"), "router = 'fastest' must be one of round_robin, random"),
        (("--set", "enable_chunked_prefill=false"), "is not modelled"),
        (("--results", "r.txt"), "must end in .parquet or .csv"),
        (("--rate-scale", "-1"), "rate_scale = -1.0 must be above zero"),
        (("--rate-scale", "0.0001"), "no session of 200 is left"),
        (("--scale-mode", "random"), "must be one of sessions, compress"),
        (("--gpu", "H100-SXM-8GB"), "did you mean 'H100-SXM-80GB'"),
        (("--set", "data_parallel_size=2", "--set", "autoscale_max_replicas=3"), "above 1 is not modelled"),
        (("--kv-blocks", "1"), "leaves no block for a request"),
        (("--trace", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    command: Command, trace: Path, tmp_path: Path, ending: tuple[str, ...], words: str
) -> None:
    assert words in command("replay", "--trace", trace, *ASKED, *ending, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]


def test_rows_out_of_order_are_sorted_and_prompts_without_tokens_left_out(command: Command, tmp_path: Path) -> None:
    rows = [
        {"timestamp": 900, "input_length": 100, "output_length": 5, "hash_ids": [1]},
        {"timestamp": 100, "input_length": 200, "output_length": 5, "hash_ids": [2]},
        {"timestamp": 500, "input_length": 0, "output_length": 5, "hash_ids": []},
    ]
    found = command("replay", "--trace", written(tmp_path / "t.jsonl", rows), *ASKED, "--results", "r.csv")
    assert found["requests"] == 2
    assert found["left_out"] == {"without prompt tokens": 1}
    empty = written(tmp_path / "none.jsonl", rows[2:])
    assert "nothing to replay (1 without prompt tokens)" in command("replay", "--trace", empty, *ASKED, code=2)


def test_the_format_recognised_and_the_file_written_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trace: Path
) -> None:
    results = trace.with_name("r.csv")
    asked = ("--trace", trace, *ASKED[2:-1], "--format", "auto", "--results", results)
    monkeypatch.setattr(sys, "argv", ["kvledger", "replay", *map(str, asked)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert not ended.value.code, err
    assert f"{trace}: read as mooncake" in err
    assert out.endswith(f"written to {results}\n")
    assert results.exists()


def test_calibrate_says_what_it_lacks(command: Command) -> None:
    assert "calibrate needs RESULTS, --format, --model, --gpu" in command("calibrate", "--output", "o.toml", code=2)


def test_replay_never_imports_prefect_nor_loads_numbers_for_its_help(trace: Path) -> None:
    script = (
        "import sys, flows.cli\n"
        "early = {'numpy', 'polars', 'numba', 'duckdb'} & set(sys.modules)\n"
        f"sys.argv = ['kvledger', 'replay', '--trace', {str(trace)!r}, *{list(ASKED)!r}]\n"
        "try:\n    flows.cli.main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "assert not early and 'prefect' not in sys.modules\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
