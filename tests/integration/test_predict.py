"""`kvledger predict` and `kvledger calibrate --points` from the command line, on the public benchmarks."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from statistics import median

import pytest

KVLEDGER = Path(sys.executable).parent / "kvledger"
ROOT = Path(__file__).resolve().parents[2]
POINT = [
    *("--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "H100-SXM-80GB", "--engine", "vllm"),
    *("--concurrency", "16", "--isl", "1024", "--osl", "512"),
]


def run(*command: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([KVLEDGER, *command], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def points(path: Path, *rows: dict[str, object]) -> Path:
    columns = list(rows[0])
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


ROW: dict[str, object] = {
    "id": "a", "engine": "vllm", "config_file": "meta-llama--Meta-Llama-3.1-8B", "gpu": "H100-SXM-80GB",
    "weights": "bf16", "tp": 1, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "concurrency": 16, "isl": 1024,
    "osl": 512,
}  # fmt: skip


def test_one_point_by_flags_says_what_it_rests_on(tmp_path: Path) -> None:
    found = json.loads(run("predict", *POINT, "--home", tmp_path, "--json").stdout)
    assert found["status"] == "ok"
    assert found["provenance"] == "calibrated"
    assert "public serving benchmarks" in found["calibration"]
    assert 5 < found["tpot_ms"] < 20
    cycle_ms = found["ttft_ms"] + 511 * found["tpot_ms"]
    assert found["output_tokens_per_s_per_gpu"] == pytest.approx(16 * 512 / cycle_ms * 1000, rel=1e-3)
    assert "tpot_ms:" in run("predict", *POINT, "--home", tmp_path).stdout
    lonely = run("predict", "--gpu", "H100-SXM-80GB", "--home", tmp_path, code=2)
    assert "--model, --concurrency, --isl, --osl lack" in lonely.stderr
    assert not list(tmp_path.iterdir())


def test_a_gpu_that_was_not_measured_is_assumed_from_the_nearest_family(tmp_path: Path) -> None:
    for gpu, family in (("A100-SXM-80GB", "vllm on hopper"), ("RTX-PRO-6000-96GB", "vllm on blackwell")):
        found = json.loads(run("predict", *POINT, "--gpu", gpu, "--home", tmp_path, "--json").stdout)
        assert found["provenance"] == "assumed"
        assert f"nearest measured family, {family}" in found["calibration"]


@pytest.mark.shared
def test_points_are_answered_or_say_why_not(shared_dir: Path, tmp_path: Path) -> None:
    configs = shared_dir / "cases/steptime/configs"
    rows = [ROW, ROW | {"id": "b", "gpu": "H1"}, ROW | {"id": "c", "tp": 3}, ROW | {"id": "d", "config_file": "x"}]
    rows.append(ROW | {"id": "e", "osl": 1})
    given, output = points(tmp_path / "points.csv", *rows), tmp_path / "out.csv"
    found = json.loads(run("predict", given, "--configs", configs, "--output", output, "--json").stdout)
    assert (found["points"], found["answered"], len(found["refused"])) == (5, 2, 3)
    with output.open(encoding="utf-8") as lines:
        answers = list(csv.DictReader(lines))
    assert list(answers[0]) == [
        "id", "status", "ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu", "provenance",
    ]  # fmt: skip
    assert [row["status"].split(";")[0].split(" ")[0] for row in answers] == ["ok", "GPU", "tp", "config_file", "ok"]
    assert answers[4]["ttft_ms"]
    assert "one output token" in answers[4]["status"]
    assert all(not row["tpot_ms"] for row in answers[1:])
    lacking = points(tmp_path / "lacking.csv", {"id": "a", "engine": "vllm"})
    said = run("predict", lacking, "--configs", configs, "--output", output, code=2).stderr
    assert "lacks the columns config_file, gpu, weights, tp, concurrency, isl, osl" in said
    assert "--configs" in run("predict", given, "--output", output, code=2).stderr


@pytest.mark.shared
def test_predictions_are_near_the_public_benchmarks(shared_dir: Path, tmp_path: Path) -> None:
    """The bounds of the shared check, all rows; thousands of points in seconds."""
    folder, output = shared_dir / "cases/steptime", tmp_path / "out.csv"
    begun = time.monotonic()
    run("predict", folder / "measured.csv", "--configs", folder / "configs", "--output", output)
    assert time.monotonic() - begun < 60
    with output.open(encoding="utf-8") as lines:
        answers = {row["id"]: row for row in csv.DictReader(lines)}
    with (folder / "measured.csv").open(encoding="utf-8") as lines:
        measured = [row for row in csv.DictReader(lines) if answers[row["id"]]["tpot_ms"]]
    assert len(measured) >= 0.98 * len(answers)
    dense = [row for row in measured if "Llama" in row["model"] or "32B" in row["model"]]
    sparse = [row for row in measured if row not in dense]
    for rows, tpot_bound, ttft_bound in ((dense, 0.07, 0.25), (sparse, 0.11, 0.25)):
        for name, bound in (("tpot_ms", tpot_bound), ("ttft_ms", ttft_bound)):
            assert median(abs(float(answers[row["id"]][name]) / float(row[name]) - 1) for row in rows) <= bound


@pytest.mark.shared
def test_a_fit_is_the_same_to_the_digit_and_leaves_out_the_impossible(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "cases/steptime"
    with (folder / "measured.csv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["engine"] == "vllm" and row["gpu"] == "H100-SXM-80GB"]
    chosen = [row for row in rows if row["weights"] == "bf16" or "Llama" in row["model"]][:60]
    impossible = chosen[0] | {"id": "too-fast", "tpot_ms": "0.001"}
    given = points(tmp_path / "measured.csv", *chosen, impossible, chosen[0] | {"id": "none", "tpot_ms": ""})
    first, second = tmp_path / "one.toml", tmp_path / "two.toml"
    for output in (first, second):
        told = run("calibrate", "--points", given, "--configs", folder / "configs", "--output", output, "--json")
    found = json.loads(told.stdout)
    assert first.read_bytes() == second.read_bytes()
    assert [row["id"] for row in found["broken_floors"]] == ["too-fast"]
    assert found["refused"] == [{"reason": "ttft_ms and tpot_ms must be numbers above zero", "points": 1}]
    assert found["fitted_points"] == 60
    document = tomllib.loads(first.read_text(encoding="utf-8"))
    (family,) = document["families"]
    assert (family["engine"], family["generation"], family["gpus"]) == ("vllm", "hopper", ["H100-SXM-80GB"])
    assert document["errors"]["fit"]["all"]["tpot_median_ratio"] < 0.06
    assert {"tpot_median_ratio", "ttft_median_ratio"} <= document["errors"]["left_out"]["all"].keys()
    home = tmp_path / "home"
    (home / "catalog/calibrations").mkdir(parents=True)
    (home / "catalog/calibrations/public-benchmarks.toml").write_bytes(first.read_bytes())
    assert "kvledger calibrate" in json.loads(run("predict", *POINT, "--home", home, "--json").stdout)["calibration"]


def test_accuracy_is_a_table_by_engine_gpu_and_model(tmp_path: Path) -> None:
    lines = run("predict", "--accuracy", "--home", tmp_path).stdout.splitlines()
    groups = json.loads(run("predict", "--accuracy", "--home", tmp_path, "--json").stdout)["groups"]
    assert len(lines) == len(groups) + 1
    assert sum(group["points"] for group in groups) > 2000
    assert {"engine", "gpu", "model", "weights", "points", "fit", "left_out"} <= groups[0].keys()


def test_the_catalogs_calibration_says_how_it_does_on_groups_left_out() -> None:
    path = ROOT / "data/catalog/calibrations/public-benchmarks.toml"
    errors = tomllib.loads(path.read_text(encoding="utf-8"))["errors"]
    assert errors["fit"]["dense"]["tpot_median_ratio"] <= 0.07
    assert errors["fit"]["dense"]["tpot_p90_ratio"] <= 0.22
    assert errors["fit"]["moe"]["tpot_median_ratio"] <= 0.11
    for kind, median_bound, p90_bound in (("dense", 0.07, 0.22), ("moe", 0.11, 0.35)):
        left_out = errors["left_out"][kind]
        assert left_out["tpot_median_ratio"] <= 4 / 3 * median_bound
        assert left_out["tpot_p90_ratio"] <= 4 / 3 * p90_bound
        assert left_out["ttft_median_ratio"] <= 4 / 3 * 0.25
