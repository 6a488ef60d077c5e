"""How long sweeps of the sample's week take: 60 scenarios of each kind, through the command line.

python tests/benchmarks/bench_whatif.py [HOME]; without a HOME that holds a built sample one is made, which takes a
minute or more. On a shared machine the CPU seconds of all processes mean more than the wall's; two free cores need half
of them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KVLEDGER = Path(sys.executable).parent / "kvledger"
SWEEPS = (
    "max_num_seqs=4:240:+4",
    "max_model_len=2048:122880:+2048",
    "ttft_p95_s=0.25:15:+0.25",
    "headroom_ratio=0.01:0.6:+0.01",
)
MOST_S = 120.0
CORES = 2


def run(*arguments: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command, its worker processes included."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([KVLEDGER, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return time.perf_counter() - started, used


def main() -> None:
    """Print both for each kind of sweep, and whether two free cores do it in two minutes."""
    with tempfile.TemporaryDirectory() as folder:
        home = sys.argv[1] if len(sys.argv) > 1 else folder
        if home == folder:
            run("sample", "--home", home)
            run("ingest", "--rebuild", "--no-prefect", "--home", home)
            run("build", "--no-prefect", "--home", home)
        run("whatif", "--deployment", "chat", "--set", "max_num_seqs=8", "--home", home)  # the kernel, compiled once
        for sweep in SWEEPS:
            wall_s, used_s = run("whatif", "--sweep", sweep, "--home", home)
            word = "under" if used_s / CORES < MOST_S else "OVER"
            print(f"{sweep:34} {wall_s:7.1f} s wall, {used_s:7.1f} s CPU: {word} two minutes on {CORES} free cores")


if __name__ == "__main__":
    main()
