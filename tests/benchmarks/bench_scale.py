"""A production week from CSV to report: seconds and peak memory of every stage, and how they grow with the rows.

`bench_scale.py [MILLIONS …]` (1, 4 and 44.107694, the rows of Azure's 2024 week). The logs are made to its published
facts: columns, stamps, number; lengths are drawn from the 2023 trace of the same services, arrivals follow the hour of
the day. Every stage is the command a user types; its memory is that of all its processes, sampled, shared pages
counted once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from peak_memory import PeakMemory

ROOT = Path(__file__).resolve().parents[2]
TRACE = (
    Path(os.environ.get("KVLEDGER_SHARED", ROOT.parent / "shared")) / "traces/azure2023/AzureLLMInferenceTrace_conv.csv"
)
KVLEDGER = Path(sys.executable).parent / "kvledger"
MONDAY_US = 1_715_558_400_000_000
"""2024-05-13 00:00 UTC."""
HOUR_US, HOURS = 3_600_000_000, 168
MOST_MIB, MOST_EXPONENT = 6 * 1024, 1.1
STAGES = {"ingest": ["--rebuild", "--no-prefect"], "build": ["--no-prefect"], "plan": []}
"""Their options; `plan` makes marts and report too."""
FLEET = """
[[sources]]
path = "week.csv"
format = "azure"

[[deployments]]
name = "conversation"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = {replicas}
[deployments.engine]
version = "0.19.0"
"""


def write_week(folder: Path, rows: int) -> None:
    """Put a week of `rows` requests and the fleet file they belong to into `folder`."""
    rng = np.random.default_rng(rows)
    known = pl.read_csv(TRACE)
    hour = np.arange(HOURS)
    weight = (1.2 + np.sin((hour % 24 - 9) / 24 * 2 * np.pi)) * np.where(hour // 24 < 5, 1.0, 0.6)
    counts = rng.multinomial(rows, weight / weight.sum())
    with (folder / "week.csv").open("wb") as file:
        for number, count in enumerate(counts):
            at_us = np.sort(rng.integers(0, HOUR_US, count)) + MONDAY_US + number * HOUR_US
            drawn = known[rng.integers(0, known.height, count)]
            stamps = pl.from_epoch(pl.Series("TIMESTAMP", at_us), "us").dt.strftime("%Y-%m-%d %H:%M:%S%.6f+00:00")
            frame = drawn.select("ContextTokens", "GeneratedTokens").insert_column(0, stamps)
            frame.write_csv(file, include_header=number == 0)
    replicas = max(1, round(rows / 1e6))
    (folder / "fleet.toml").write_text(FLEET.format(replicas=replicas), encoding="utf-8")


def run(stage: str, home: Path) -> tuple[float, float]:
    """Seconds and peak MiB of one command."""
    words = [KVLEDGER, stage, "--home", home, *STAGES[stage]]
    started_s = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        watch = PeakMemory(running.pid)
        watch.start()
        said = running.communicate()[1]
        watch.ended.set()
    if running.returncode:
        sys.exit(f"kvledger {stage}: {said}")
    return time.perf_counter() - started_s, watch.peak_mib


def main(sizes: list[float]) -> None:
    """Print seconds and memory by stage and size, and the exponent between the smallest and the largest."""
    took: dict[float, dict[str, float]] = {}
    for millions in sizes:
        folder = Path(tempfile.mkdtemp(prefix="kvledger-scale-"))
        try:
            write_week(folder, round(millions * 1e6))
            print(f"{millions:g} million rows, {(folder / 'week.csv').stat().st_size / 1e9:.2f} GB", flush=True)
            took[millions] = {}
            for stage in STAGES:
                seconds, peak = run(stage, folder)
                took[millions][stage] = seconds
                fits = "ok" if peak <= MOST_MIB else "TOO MUCH"
                print(f"  {stage}: {seconds:,.1f} s, {peak:,.0f} MiB ({fits})", flush=True)
        finally:
            shutil.rmtree(folder)
    small, large = min(took), max(took)
    if small < large:
        for stage in STAGES:
            exponent = np.log(took[large][stage] / took[small][stage]) / np.log(large / small)
            print(f"{stage} grows with rows to the power {exponent:.2f} (limit {MOST_EXPONENT})")
        whole = [sum(took[size].values()) for size in (small, large)]
        print(f"all: {np.log(whole[1] / whole[0]) / np.log(large / small):.2f}")


if __name__ == "__main__":
    main([float(word) for word in sys.argv[1:]] or [1, 4, 44.107694])
