"""A small fleet with two days of logs, and `kvledger serve` on it as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flows.home import Home

KVLEDGER = Path(sys.executable).parent / "kvledger"
FLEET = """
[[sources]]
format = "mooncake"
path = "logs/*.jsonl"
origin = "2026-11-16T00:00:00Z"
[[deployments]]
name = "llama"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
"""


def eventually(holds: Callable[[], bool], within_s: float = 30.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def place_trace(folder: Path) -> Path:
    """Two days of logs, and the fleet file that names them."""
    (folder / "logs").mkdir()
    for day in (0, 1):
        lines = [
            {"timestamp": 86_400_000 * day + 4000 * n, "input_length": 300 + 7 * n, "output_length": 20 + n % 90,
             "hash_ids": list(range(1 + n % 5))}
            for n in range(400)
        ]  # fmt: skip
        (folder / "logs" / f"{day}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "fleet.toml").write_text(FLEET)
    return folder / "fleet.toml"


@contextmanager
def serving(home: Home, fleet: Path, migrated: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kvledger serve` as a process, its schedule's database already migrated; ended by SIGTERM."""
    home.schedule.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(migrated)) as source, closing(sqlite3.connect(home.schedule / "prefect.db")) as copy:
        source.backup(copy)
        copy.execute("delete from flow_run")
        copy.commit()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [KVLEDGER, "serve", "--home", str(home.root), "--fleet", str(fleet), *options]
    said = (home.root / "said.txt").open("wb")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()
        said.close()


def stored(home: Home, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home.schedule / "prefect.db")) as database:
        return database.execute(query).fetchall()


STATES = "select name, state_type from flow_run where state_type not in ('SCHEDULED', 'PENDING', 'RUNNING')"
