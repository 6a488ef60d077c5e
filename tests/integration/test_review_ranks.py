"""A mixture of experts under data parallelism from a log to the report and to a what-if, as a user runs it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 16, 9, tzinfo=UTC)
FLEET = """
[[sources]]
format = "kvledger"
path = "rows.jsonl"
[[deployments]]
name = "experts"
serves = ["*"]
model = "openai/gpt-oss-120b"
gpu = "H100-SXM-80GB"
replicas = 1
[deployments.engine]
version = "0.19.0"
tensor_parallel_size = 2
data_parallel_size = 4
enable_expert_parallel = true
max_num_seqs = 64
max_num_batched_tokens = 2048
"""


def kvledger(home: Path, *words: str) -> Any:
    """The JSON that the command prints."""
    command = [sys.executable, "-m", "flows.cli", *words, "--json"]
    alone = os.environ | {"KVLEDGER_WORKERS": "1"}
    done = subprocess.run(command, cwd=home, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_review_and_a_what_if_of_ranks(tmp_path: Path) -> None:
    draw = random.Random(4)
    rows = [
        {"request_id": str(n), "arrived_at": (START + timedelta(seconds=8 * n + draw.random())).isoformat(),
         "prompt_tokens": 200 + draw.randrange(3000), "output_tokens": 20 + draw.randrange(300)}
        for n in range(250)
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "fleet.toml").write_text(FLEET)
    told = kvledger(tmp_path, "review", "--no-prefect", "--home", ".")
    (decision,) = told["decision"]
    assert (decision["gpus_now"], decision["gpus_needed"] % 8) == (8, 0)
    (dim,) = told["tables"]["dim_deployments"]
    (account,) = kvledger(tmp_path, "kv", "--fleet", "fleet.toml")["deployments"]
    assert dim["kv_capacity_tokens"] == account["capacity_tokens_per_replica"] == 4 * account["capacity_tokens"]
    assert dim["gpus_per_replica_gpus"] == account["gpus_per_replica"] == 8
    for row in told["tables"]["plan_replicas"]:
        assert row["kv_capacity_bytes"] == dim["kv_capacity_bytes"] == account["capacity_bytes_per_replica"]
        assert row["needed_gpus"] == 8 * row["needed_replicas"]
    page = (tmp_path / told["report"]).read_text()
    assert "8 × H100-SXM-80GB a replica (TP 2, DP 4)" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "tokens per second of one data-parallel rank" in page
    settings = ("--set", "data_parallel_size=2", "--set", "replicas=2")
    asked = kvledger(tmp_path, "whatif", "--home", ".", *settings)["tables"]["plan_scenarios"]
    assert [(row["outcome"], row["fleet_gpus"]) for row in asked] == [("answered", 8)] * 2
    today, halved = sorted(asked, key=lambda row: row["position"])
    assert today["tpot_p50_s"] != halved["tpot_p50_s"]  # experts over four GPUs, not eight
