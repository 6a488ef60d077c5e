"""Most memory of a benchmark with all its processes, sampled."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class PeakMemory(threading.Thread):
    """Watches the memory of process `top` (default: this one) and its children, each shared page once, in MiB."""

    def __init__(self, top: int | None = None) -> None:
        super().__init__(daemon=True)
        self.top = top or os.getpid()
        self.peak_mib = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Look twice a second."""
        while not self.ended.wait(0.5):
            self.peak_mib = max(self.peak_mib, sum(map(pss_mib, family(self.top))))


def family(top: int) -> list[int]:
    """Process ids of `top` and all below it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue
    own = {top}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sorted(own)


def pss_mib(pid: int) -> float:
    """Memory of one process, shared pages divided among those that share them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
