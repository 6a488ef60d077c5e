"""There is one KV account: nobody else derives KV bytes from heads and layers, and everybody carries its numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flows.catalog import load_catalog
from flows.deployments import place
from flows.fleet import LoadedFleet, load_fleet
from flows.home import Home
from transforms.sample import services

ROOT = Path(__file__).resolve().parents[2]
KVLEDGER = Path(sys.executable).parent / "kvledger"
KV_WORDS = re.compile(r"\b(kv_heads|num_key_value_heads|kv_lora_rank|num_kv_heads)\b")
ACCOUNT = re.compile(
    r"transforms/planner/(memory/kv_\w+|model/(model_shape|model_families|config_reading|layer_\w+)|steps/layer_flop)\.py"
)
WEIGHTS_AND_FLOP = re.compile(
    r"transforms/planner/(model/(\w*parameters|weights)|memory/budget|steps/(hardware|step_time)|sizing/arithmetic)\.py"
)
"""These count weights and floating point work from the same config; their own test is that no KV bytes leave them."""
ENVELOPE = re.compile(r"flows/commands/envelope\.py|transforms/planner/sizing/(envelope_answers|quantities)\.py")
"""Names of quantities that a user of `kvledger envelope` writes down; no plan reads them."""

PLAN_FACTS = """
[[sources]]
format = "azure"
path = "rows.csv"
timezone = "UTC"
[[deployments]]
name = "dense"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
"""


def test_only_the_account_knows_kv_heads() -> None:
    found = [
        str(path.relative_to(ROOT))
        for room in ("flows", "transforms", "reports", "sql")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".py", ".sql") and KV_WORDS.search(path.read_text())
    ]
    known = (ACCOUNT, WEIGHTS_AND_FLOP, ENVELOPE)
    assert [path for path in found if not any(files.fullmatch(path) for files in known)] == []


def test_sql_carries_block_sizes_and_computes_none() -> None:
    using = {p.name for p in (ROOT / "sql").rglob("*.sql") if "bytes_per_block" in p.read_text()}
    assert using == {"dim_kv_groups.sql", "kv_bytes.sql", "kv_mean_bytes.sql"}  # the macros evaluate that table


def test_what_a_plan_calls_a_token_is_what_the_kv_command_prints(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(PLAN_FACTS)
    where = ["--home", tmp_path / "home", "--fleet", fleet]
    subprocess.run([KVLEDGER, "review", "--no-prefect", *where], check=True, capture_output=True)
    asked = "select kv_token_bytes, kv_capacity_bytes, kv_capacity_tokens from dim_deployments"
    rows = _json("query", asked, "--home", tmp_path / "home")["rows"]
    groups = _json("query", "select * from dim_kv_groups", "--home", tmp_path / "home")["rows"]
    (printed,) = _json("kv", *where)["deployments"]
    assert rows[0]["kv_token_bytes"] == printed["bytes_per_token_per_gpu"]
    assert rows[0]["kv_capacity_tokens"] == printed["capacity_tokens"] == printed["capacity_tokens_per_replica"]
    assert rows[0]["kv_capacity_bytes"] == printed["capacity_bytes_per_replica"]
    assert rows[0]["kv_capacity_bytes"] == printed["num_blocks"] * sum(g["bytes_per_block"] for g in groups)
    assert groups[0]["block_tokens"] == printed["block_size_tokens"]


@pytest.mark.parametrize(
    ("deployment", "engine"),
    [("chat", services.CHAT_ENGINE), ("coding-agent", services.AGENT_ENGINE), ("summariser", services.SUMMARY_ENGINE)],
)
def test_the_samples_engines_hold_what_the_account_says(deployment: str, engine: services.Engine) -> None:
    loaded: LoadedFleet = load_fleet(ROOT / "data" / "fleet.toml", Home(ROOT / "data"))
    (one,) = [d for d in loaded.fleet.deployments if d.name == deployment]
    assert engine.kv_token_bytes == place(one, loaded, load_catalog(None)).account.bytes_per_token


def _json(*command: str | Path) -> dict:
    ran = subprocess.run([KVLEDGER, *command, "--json"], check=True, capture_output=True, text=True)
    return json.loads(ran.stdout)
