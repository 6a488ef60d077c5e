"""The main job on real public traces: the figures their README states come out of `kvledger review --json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KVLEDGER = Path(sys.executable).parent / "kvledger"
FLEET = """
[[sources]]
name = "trace"
format = "{format}"
path = "{path}"
{settings}
[[deployments]]
name = "llama"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 2
[deployments.engine]
max_model_len = 131072
"""

pytestmark = pytest.mark.shared


def review(folder: Path, trace: Path, log_format: str, settings: str, *options: str) -> dict[str, Any]:
    fleet = folder / "fleet.toml"
    fleet.write_text(FLEET.format(format=log_format, path=trace, settings=settings))
    place = ["--home", folder / "home", "--fleet", fleet]
    command = [KVLEDGER, "review", *place, "--week", "2023-W46", "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def lengths(reviewed: dict[str, Any], table: str) -> dict[str, Any]:
    rows = reviewed["tables"][table]
    return next(r for r in rows if r["deployment_id"] == "llama" and r["model"] == "(all)" and r["week"] == "2023-W46")


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> dict[str, Any]:
    trace = shared_dir / "traces/azure2023/AzureLLMInferenceTrace_conv.csv"
    return review(tmp_path_factory.mktemp("azure"), trace, "azure", 'timezone = "UTC"')


@pytest.fixture(scope="module")
def mooncake(tmp_path_factory: pytest.TempPathFactory, shared_dir: Path) -> dict[str, Any]:
    trace = shared_dir / "traces/mooncake/conversation_trace.jsonl"
    folder = tmp_path_factory.mktemp("mooncake")
    return review(folder, trace, "mooncake", 'origin = "2023-11-13T00:00:00Z"', "--no-prefect")


def test_azure_lengths_and_arrivals(azure: dict[str, Any]) -> None:
    assert azure["requests"] == 19_366
    prompt, output = lengths(azure, "dist_prompt_tokens"), lengths(azure, "dist_output_tokens")
    names = ("p50", "p90", "p99", "max")
    assert [prompt[f"prompt_{n}_tokens"] for n in names] == pytest.approx([1020, 2734.5, 4142, 14050], abs=0.5)
    assert [output[f"output_{n}_tokens"] for n in names] == pytest.approx([129, 424, 601, 1000], abs=0.5)
    seconds = [r for r in azure["tables"]["dist_arrivals"] if r["window_s"] == 1 and r["deployment_id"] == "llama"]
    assert [r["arrivals_peak_requests"] for r in seconds] == [19]


def test_azure_warns_how_little_of_the_week_is_covered(azure: dict[str, Any]) -> None:
    assert azure["coverage"]["covered_s"] == pytest.approx(58 * 60, rel=0.02)
    assert any("58 minutes" in w["text"] for w in azure["warnings"])


def test_azure_decision_has_no_interval_and_says_why(azure: dict[str, Any]) -> None:
    (decision,) = azure["decision"]
    assert decision["deployment"] == "llama"
    assert decision["gpus_now"] == 2
    assert decision["gpus_needed"] >= 1
    assert decision["gpus_low"] is None
    assert decision["gpus_high"] is None
    assert decision["binding"] in ("kv", "compute", "latency")
    assert decision["provenance"] in ("modelled", "assumed")
    assert any("interval" in w["text"] for w in azure["warnings"])


def test_azure_little_identity_in_the_published_tables(azure: dict[str, Any]) -> None:
    tables = azure["tables"]
    swept = sum(
        r["residency_mean_bytes"] * 300
        for r in tables["plan_residency"]
        if r["phase"] in ("prefill", "decode") and r["pace"] == "observed"
    )
    held = sum(r["kv_time_byte_s"] for r in tables["plan_kv_time"] if r["phase"] in ("prefill", "decode"))
    assert swept == pytest.approx(held, rel=1e-9)


def test_mooncake_lengths_and_its_stamps(mooncake: dict[str, Any]) -> None:
    assert mooncake["requests"] == 12_031
    prompt = lengths(mooncake, "dist_prompt_tokens")
    names = ("p50", "p90", "p99", "max")
    assert [prompt[f"prompt_{n}_tokens"] for n in names] == pytest.approx([6909, 27367, 85400, 126195], abs=0.5)
    assert any("3 s" in w["text"] and "burst" in w["text"] for w in mooncake["warnings"])
