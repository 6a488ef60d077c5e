"""Bad input: one clear line on stderr, nothing on stdout, exit 2, nothing half-written."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main

KVLEDGER = Path(sys.executable).parent / "kvledger"
ROWS = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
FLEET = """
[[sources]]
format = "azure"
path = "rows.csv"
timezone = "UTC"
[[deployments]]
name = "llama"
serves = ["*"]
model = "{model}"
gpu = "{gpu}"
[deployments.engine]
tensor_parallel_size = {tp}
{extra}
"""
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def place(
    folder: Path, *, model: str = MODEL, gpu: str = "H100-SXM-80GB", tp: int = 1, extra: str = "", rows: str = ROWS
) -> Path:
    (folder / "rows.csv").write_text(rows)
    fleet = folder / "fleet.toml"
    fleet.write_text(FLEET.format(model=model, gpu=gpu, tp=tp, extra=extra))
    return fleet


def refused(*command: str | Path) -> str:
    """The one line of a command that must be refused with exit 2 and an empty stdout."""
    ran = subprocess.run([KVLEDGER, *command], capture_output=True, text=True, check=False)
    assert ran.returncode == 2, (ran.returncode, ran.stderr[-1500:])
    assert ran.stdout == ""
    lines = [line for line in ran.stderr.splitlines() if line.startswith("kvledger: ")]
    assert len(lines) == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    return lines[0]


def review(folder: Path, fleet: Path, *options: str) -> str:
    return refused("review", "--no-prefect", "--home", folder / "home", "--fleet", fleet, *options)


def test_no_such_file(tmp_path: Path) -> None:
    line = refused("ingest", tmp_path / "absent.csv", "--format", "azure", "--home", tmp_path / "home", "--no-prefect")
    assert "absent.csv" in line


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").touch()
    line = refused("ingest", tmp_path / "rows.csv", "--format", "azure", "--home", tmp_path / "home", "--no-prefect")
    assert "rows.csv" in line
    assert "empty" in line


def test_wrong_format_names_what_it_looks_like(tmp_path: Path) -> None:
    place(tmp_path)
    line = refused("ingest", tmp_path / "rows.csv", "--format", "litellm", "--home", tmp_path / "home", "--no-prefect")
    assert "azure" in line
    assert not list((tmp_path / "home").glob("lake/requests/**/*.parquet"))


def test_unknown_fleet_key_names_the_nearest(tmp_path: Path) -> None:
    fleet = place(tmp_path, extra="max_modl_len = 8192")
    line = review(tmp_path, fleet)
    assert "max_modl_len" in line
    assert "max_model_len" in line


def test_unknown_model_and_gpu(tmp_path: Path) -> None:
    assert MODEL in review(tmp_path, place(tmp_path, model="meta-llama/Llama-3.1-8B-Instrct"))
    assert "H100-SXM-80GB" in review(tmp_path, place(tmp_path, gpu="H100-SXM-80G"))


def test_a_week_without_rows_names_what_is_covered(tmp_path: Path) -> None:
    line = review(tmp_path, place(tmp_path), "--week", "2024-W01")
    assert "2024-W01" in line
    assert "2023-W46" in line
    assert "week" in review(tmp_path, place(tmp_path), "--week", "yesterday")


def test_weights_that_do_not_fit_name_the_smallest_tp(tmp_path: Path) -> None:
    line = review(tmp_path, place(tmp_path, model="meta-llama/Llama-3.1-70B-Instruct"))
    assert "tensor_parallel_size" in line
    assert " 4" in line or " 2" in line


LARGE = {"model": "meta-llama/Llama-3.1-70B-Instruct", "tp": 2}
IMPOSSIBLE = {
    "an engine that cannot start": (LARGE, ["deployment 'llama'", "the largest that fits is", "size 4"]),
    "more requests than tokens of a step": (
        {"extra": "max_num_batched_tokens = 64\nmax_num_seqs = 256"}, ["'llama'", "is below max_num_seqs = 256"],
    ),
    "no block": ({"extra": "block_size = 0"}, ["deployment 'llama'", "[engine]", "block_size = 0"]),
    "less than no memory": ({"extra": "activation_bytes = -1"}, ["[engine]", "activation_bytes = -1", "bytes"]),
    "a share of the GPU that is none": ({"extra": "gpu_memory_utilization = nan"}, ["gpu_memory_utilization", "nan"]),
    "an endless promise": ({"extra": "[deployments.slo]\nttft_p95_s = inf"}, ["ttft_p95_s", "inf"]),
    "a window of a month": ({"extra": '[deployments.slo]\nwindow = "700h"'}, ["deployment 'llama'", "[slo]", "700h"]),
    "headroom that is no number": ({"extra": "[planning]\nheadroom_ratio = nan"}, ["planning.headroom_ratio", "nan"]),
    "a time zone nobody has": ({"extra": '[planning]\ntimezone = "Mars/Olympus"'}, ["[planning]", "Mars/Olympus"]),
    "a negative lead time": ({"extra": "[planning]\nlead_time_days = -3"}, ["[planning]", "lead_time_days = -3"]),
    "a negative price": ({"extra": "[prices]\nH100-SXM-80GB = -2.0"}, ["[prices]", "H100-SXM-80GB", "-2.0"]),
    "a price of a GPU that is none": (
        {"extra": "[prices]\nH100-SXM-80G = 2.0"}, ["[prices]", "H100-SXM-80G", "did you mean 'H100-SXM-80GB'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_refused_before_anything_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    words: list[str],
) -> None:
    """Run `main` in this process: starting Python for each refusal would take most of the time."""
    fleet, home = place(tmp_path, **changes), tmp_path / "home"
    options = ["review", "--no-prefect", "--home", str(home), "--fleet", str(fleet), "--json"]
    monkeypatch.setattr(sys, "argv", ["kvledger", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    lines = printed.err.strip().splitlines()
    assert (ended.value.code, printed.out, len(lines)) == (2, "", 1), printed.err
    assert all(word in lines[0] for word in (*words, "fleet.toml")), lines[0]
    assert not list(home.rglob("*")), "something was written"


def test_a_calibration_that_is_not_there(tmp_path: Path) -> None:
    fleet = place(tmp_path)
    fleet.write_text(fleet.read_text().replace('gpu = "', 'calibration = "absent.toml"\ngpu = "'))
    line = review(tmp_path, fleet)
    assert "absent.toml does not exist" in line
    assert "deployment 'llama'" in line


def test_a_home_that_another_run_holds(tmp_path: Path) -> None:
    fleet = place(tmp_path)
    (tmp_path / "home").mkdir()
    with (tmp_path / "home" / ".lock").open("w") as lock:
        lock.write("pid 4242 (kvledger review)")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = review(tmp_path, fleet)
    assert "4242" in line
    assert "--wait" in line


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    fleet = place(tmp_path)
    home = tmp_path / "home"
    home.write_text("a file stands where the home should be")
    assert str(home) in review(tmp_path, fleet)


@pytest.mark.parametrize("option", ["--wek", "--week"])
def test_a_wrong_command_line(option: str) -> None:
    assert "--wek" in refused("review", option) if option == "--wek" else "--week" in refused("review", option)


def test_a_review_tells_what_it_rejected_and_a_refused_one_leaves_the_lake_as_it_was(tmp_path: Path) -> None:
    fleet = place(tmp_path, rows=f"{ROWS}not a time,1,1\n")
    done = [KVLEDGER, "review", "--no-prefect", "--json", "--home", tmp_path / "home", "--fleet", fleet]
    reviewed = json.loads(subprocess.run(done, check=True, capture_output=True).stdout)
    told = {"code": "records_rejected", "text": "rows.csv (azure): 1 of 3 records rejected", "deployment": None}
    assert told in reviewed["warnings"]
    before = {p: p.read_bytes() for p in (tmp_path / "home").rglob("*.parquet")}
    assert before
    place(tmp_path, rows="nonsense\n1\n")
    review(tmp_path, fleet)
    assert {p: p.read_bytes() for p in (tmp_path / "home").rglob("*.parquet")} == before
    assert not list((tmp_path / "home" / "staging").glob("runs/**/*"))
