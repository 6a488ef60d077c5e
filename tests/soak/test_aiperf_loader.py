"""Exports are read by the real tool: AIPerf's own model of a trace, from the registry, in its own environment."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from lakes import random_rows, write_fleet, write_lake

KVLEDGER = Path(sys.executable).parent / "kvledger"
READ = """
import json, sys
from aiperf.dataset.loader.models import MooncakeTrace
rows = [MooncakeTrace.model_validate_json(line) for line in open(sys.argv[1])]
print(json.dumps([[row.input_length, row.output_length, row.session_id] for row in rows]))
"""


@pytest.fixture(scope="module")
def aiperf(tmp_path_factory):
    """Python with AIPerf, which needs older packages than ours."""
    folder = tmp_path_factory.mktemp("aiperf")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "aiperf>=0.13"], check=True, capture_output=True)
    return python


@pytest.mark.soak
@pytest.mark.parametrize("form", ["mooncake", "aiperf-trace"])
def test_aiperf_reads_what_is_exported(aiperf, tmp_path, form):
    home = write_lake(tmp_path / "home", random_rows(seed=5, sessions=80))
    write_fleet(home)
    trace = tmp_path / "trace.jsonl"
    for words in (
        ["build", "--no-prefect"],
        ["export", "--format", form, "--week", "2026-W47", "--output", str(trace)],
    ):
        subprocess.run([KVLEDGER, *words, "--home", str(home.root)], check=True, capture_output=True)
    ran = subprocess.run([aiperf, "-c", READ, str(trace)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    written = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len(written) > 50
    wanted = [[row["input_length"], row["output_length"], row.get("session_id")] for row in written]
    assert json.loads(ran.stdout.splitlines()[-1]) == wanted
