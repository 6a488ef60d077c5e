"""`kvledger calibrate --against PLAN`: a load test held against the plan's model, and the factor its gap implies."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.catalog import load_catalog
from flows.cli import app
from flows.deployments import place
from flows.fleet import load_fleet
from flows.home import Home
from flows.lake_files import write_table
from flows.sites import site_of
from transforms.errors import ConfigError, InputError
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.sizing.plan_tables import plan_rows
from transforms.planner.sizing.replay_week import engine_settings, replica_costs

FLEET = """
[[deployments]]
name = "chat"
serves = ["*"]
model = "meta-llama/Llama-3.1-8B-Instruct"
gpu = "H100-SXM-80GB"
replicas = 1
[deployments.engine]
version = "0.19.0"
max_model_len = 32768
"""
START = datetime(2026, 11, 16, tzinfo=UTC)


def load_test(home: Path, slower: float, requests: int = 300) -> Path:
    """Results of a load test on an engine whose every step takes `slower` times as long as the plan's."""
    random = np.random.default_rng(1)
    catalog, fleet = load_catalog(Home(home)), load_fleet(None, Home(home))
    replica = site_of(place(fleet.fleet.deployments[0], fleet, catalog), fleet, catalog, covered_s=0.0).replica
    at = np.cumsum(random.exponential(0.25, requests))
    prompt, output = random.integers(200, 2000, requests), random.integers(50, 400, requests)
    costs = replica_costs(replica)
    fixed = ("experts", "experts_per_token", "prefill_pair_ratio")
    slow = costs._replace(**{name: slower * value for name, value in costs._asdict().items() if name not in fixed})
    rows = pl.DataFrame({"arrived_at": [START + timedelta(seconds=float(s)) for s in at]}).with_columns(
        **{name: pl.lit(None, pl.String) for name in
           ("session_id", "agent_id", "status", "finish_reason", "request_id")},
        **{name: pl.lit(None, pl.Int64) for name in
           ("turn", "cached_prompt_tokens", "requested_output_tokens", "tool_calls", "tool_results",
            "prefix_block_tokens")},
        **{name: pl.lit(None, pl.Float64) for name in ("queue_s", "ttft_s", "e2e_s", "logged_tool_wait_s")},
        prefix_block_ids=pl.lit(None, pl.List(pl.UInt64)), operation=pl.lit("chat"), served_by=pl.lit("backend"),
        prompt_tokens=pl.Series(prompt), output_tokens=pl.Series(output),
    ).with_columns(request_id=pl.int_range(pl.len()).cast(pl.String))  # fmt: skip
    trace = replay_trace(rows, "test", is_causal=False)
    ran = replay(trace.columns, engine_settings(replica, trace, ReplayOptions()), slow)
    path = home / "results.jsonl"
    lines = zip(at, prompt, output, zip(ran.queue_s, ran.ttft_s, ran.e2e_s, strict=True), strict=True)
    path.write_text("".join(json.dumps(_line(*values)) + "\n" for values in lines))
    return path


def _line(at: float, prompt: int, output: int, times: tuple[float, ...]) -> dict[str, Any]:
    named = dict(zip(("queue_s", "ttft_s", "e2e_s"), map(float, times), strict=True))
    stamp = (START + timedelta(seconds=float(at))).isoformat()
    return {"arrived_at": stamp, "prompt_tokens": int(prompt), "output_tokens": int(output), "status": "ok", **named}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("against")
    (made / "fleet.toml").write_text(FLEET)
    keys = {"run_id": "r", "week": "2026-W47", "deployment_id": "chat", "scenario_id": "today"}
    row = {"demand": "kv", "is_binding": True, "now_replicas": 1, "headroom_ratio": 0.3, "provenance": "modelled"}
    folder = made / "plans/week=2026-W47"
    folder.mkdir(parents=True)
    write_table(plan_rows("plan_replicas", keys, [row]), folder / "plan_replicas.parquet")
    return made


def asked(home: Path, results: Path, *words: str) -> dict[str, Any]:
    plan = home / "plans/week=2026-W47"
    words = (str(results), "--format", "kvledger", "--against", str(plan), "--home", str(home), *words)
    ran = CliRunner().invoke(app, ["calibrate", *words, "--json"])
    if ran.exception is not None:
        raise ran.exception
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_a_test_that_meets_the_plan_needs_no_further_safety(home: Path) -> None:
    found = asked(home, load_test(home, 1.0))
    assert found["compared_requests"] == 300
    assert found["safety_factor"] == pytest.approx(1.0, abs=0.02)
    for row in found["figures"]:
        assert row["measured_to_predicted_factor"] == pytest.approx(1.0, abs=0.05), row


def test_an_engine_half_as_slow_again_is_the_factor_that_comes_out(home: Path) -> None:
    results = load_test(home, 1.5)
    found = {row["measure"]: row["measured_to_predicted_factor"] for row in asked(home, results)["figures"]}
    assert 1.45 <= found["tpot_p50_s"] <= 2.0  # half as slow again, and so more requests at once
    assert found["ttft_p50_s"] > 1.3
    assert asked(home, results)["safety_factor"] >= 1.4
    told = CliRunner().invoke(
        app, ["calibrate", str(results), "--format", "kvledger", "--against", str(home / "plans/week=2026-W47"),
              "--home", str(home)],
    )  # fmt: skip
    assert "more than the plan's headroom (1.30)" in told.stdout


def test_what_cannot_be_held_against_a_plan(home: Path) -> None:
    with pytest.raises(InputError, match="40 requests have a first token and an end"):
        asked(home, load_test(home, 1.0, requests=40))
    with pytest.raises(ConfigError, match=r"--deployment chta: not in .*; did you mean 'chat'"):
        asked(home, load_test(home, 1.0), "--deployment", "chta")
    words = ["calibrate", "x.jsonl", "--format", "kvledger", "--against", str(home), "--home", str(home)]
    with pytest.raises(ConfigError, match=r"holds no plan_replicas\.parquet; name a folder such as"):
        raise CliRunner().invoke(app, words).exception or AssertionError
