"""A measured vLLM run told as benchmarks and gateways tell theirs: the fit comes out as from the engine's own log."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

KVLEDGER = Path(sys.executable).parent / "kvledger"
Rows = list[dict[str, Any]]


def run_of(shared_dir: Path) -> Rows:
    """The requests of a measured run, oldest first: at, first, last (epoch seconds), prompt and output tokens."""
    path = shared_dir / "traces/vllm-measured/RTXPRO6000/Llama-3.1-8B/requests.jsonl"
    logged = sorted(map(json.loads, path.read_text().splitlines()), key=lambda row: row["queued_ts"])
    shift = 1_777_142_838.0 - logged[0]["queued_ts"]
    return [
        {
            "id": row["request_id"], "at": row["queued_ts"] + shift, "first": row["first_token_ts"] + shift,
            "last": row["last_token_ts"] + shift, "prompt": row["input_toks"], "output": row["output_toks"],
        }
        for row in logged
    ]  # fmt: skip


def vllm_bench(rows: Rows) -> str:
    return json.dumps(
        {
            "date": "20260425-184718", "backend": "openai", "model_id": "m", "num_prompts": len(rows),
            "request_rate": 4.0, "burstiness": 1.0, "duration": rows[-1]["last"] - rows[0]["at"],
            "completed": len(rows), "input_lens": [r["prompt"] for r in rows],
            "output_lens": [r["output"] for r in rows],
            "ttfts": [r["first"] - r["at"] for r in rows], "latencies": [r["last"] - r["at"] for r in rows],
            "itls": [[(r["last"] - r["first"]) / (r["output"] - 1)] * (r["output"] - 1) for r in rows],
            "start_times": [r["at"] for r in rows], "errors": [""] * len(rows),
        }
    )  # fmt: skip


def guidellm(rows: Rows) -> str:
    done = [
        {
            "request_id": r["id"], "request_args": "{}", "input_metrics": {"text_tokens": r["prompt"]},
            "output_metrics": {"text_tokens": r["output"]},
            "info": {"request_id": r["id"], "status": "completed",
                     "timings": {"request_start": r["at"], "first_token_iteration": r["first"],
                                 "last_token_iteration": r["last"], "request_end": r["last"]}},
        }
        for r in rows
    ]  # fmt: skip
    groups = {"successful": done, "incomplete": [], "errored": []}
    return json.dumps({"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": [{"requests": groups}]})


def aiperf(rows: Rows) -> str:
    return "".join(
        json.dumps(
            {
                "metadata": {"x_request_id": r["id"], "request_start_ns": int(r["at"] * 1e9),
                             "request_end_ns": int(r["last"] * 1e9), "benchmark_phase": "profiling",
                             "was_cancelled": False},
                "metrics": {"input_sequence_length": {"value": r["prompt"], "unit": "tokens"},
                            "output_sequence_length": {"value": r["output"], "unit": "tokens"},
                            "time_to_first_token": {"value": (r["first"] - r["at"]) * 1e3, "unit": "ms"},
                            "request_latency": {"value": (r["last"] - r["at"]) * 1e3, "unit": "ms"}},
                "error": None,
            }
        )
        + "\n"
        for r in rows
    )  # fmt: skip


def litellm(rows: Rows) -> str:
    def stamp(at_s: float) -> str:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

    return "".join(
        json.dumps(
            {
                "request_id": r["id"], "call_type": "acompletion", "startTime": stamp(r["at"]),
                "endTime": stamp(r["last"]),
                "completionStartTime": stamp(r["first"]), "model": "hosted_vllm/m", "prompt_tokens": r["prompt"],
                "completion_tokens": r["output"], "total_tokens": r["prompt"] + r["output"], "spend": 0.0,
                "cache_hit": "False", "status": "success",
            }
        )
        + "\n"
        for r in rows
    )  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("told", [vllm_bench, guidellm, aiperf, litellm])
def test_a_run_calibrates_from_whatever_tells_of_it(shared_dir: Path, tmp_path: Path, told: Any) -> None:
    form = told.__name__.replace("_", "-")
    log = tmp_path / ("run.json" if form in ("vllm-bench", "guidellm") else "run.jsonl")
    log.write_text(told(run_of(shared_dir)))
    config = shared_dir / "traces/vllm-measured/RTXPRO6000/Llama-3.1-8B/config.json"
    done = subprocess.run(
        [KVLEDGER, "calibrate", log, "--format", form, "--model", config, "--gpu", "RTX-PRO-6000-96GB",
         "--engine-version", "0.19.0", "--max-num-seqs", "128", "--max-num-batched-tokens", "2048",
         "--output", tmp_path / "fit.toml", "--json"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["provenance"] == "calibrated"
    assert (found["fit_requests"], found["holdout_requests"]) == (150, 150)
    assert abs(found["holdout_error_ratio"]["tpot_s"]) < 0.08
    assert abs(found["holdout_error_ratio"]["e2e_s"]) < 0.05
    assert f'format = "{form}"' in (tmp_path / "fit.toml").read_text()
