"""The plan stage on a small home: which weeks are planned, the same bytes every time, refusals that change nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lakes import FLEET, HERE, MONDAY, no_progress, random_rows, row, write_fleet, write_lake

from flows.build import build
from flows.catalog import load_catalog
from flows.home import Home
from flows.plan import plan, plan_week
from flows.plan_facts import lay_facts, read_workload
from flows.processes import worker_pool
from flows.review import check_request
from flows.warehouse import published
from transforms.errors import CatalogError, ConfigError, DataError, KvledgerError
from transforms.planner.sizing.plan_tables import PLAN_TABLES

KVLEDGER = Path(sys.executable).parent / "kvledger"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Ten days of sessions over two weeks, built; one attempt still runs when the second week starts."""
    late = row(10**6, arrived_at=MONDAY + timedelta(days=7, seconds=-30), e2e_s=60.0, ttft_s=1.0)
    made = write_lake(tmp_path_factory.mktemp("plan"), [*random_rows(3, 300), late])
    build(made, write_fleet(made), load_catalog(made), no_progress)
    return made


def planned(home: Home, week: str | None = None, fleet: str = FLEET) -> str:
    with published(home) as connection:
        return plan_week(connection, home, write_fleet(home, fleet), load_catalog(home), week, no_progress, HERE)


def digests(home: Home) -> dict[str, str]:
    files = sorted(home.plans.glob("week=*/*.parquet"))
    return {str(path.relative_to(home.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_latest_week_and_the_one_before_it_are_planned(home: Home) -> None:
    assert planned(home) == "2026-W48"
    assert sorted(path.name for path in home.plans.iterdir()) == ["week=2026-W47", "week=2026-W48"]
    for week in ("2026-W47", "2026-W48"):
        for name, schema in PLAN_TABLES.items():
            frame = pl.read_parquet(home.plans / f"week={week}/{name}.parquet")
            assert dict(frame.schema) == schema, name
        replicas = pl.read_parquet(home.plans / f"week={week}/plan_replicas.parquet")
        assert replicas.filter("is_binding")["deployment_id"].to_list() == ["chat", "rest"]


def test_planning_again_writes_the_same_bytes(home: Home) -> None:
    planned(home)
    before = digests(home)
    planned(home, "2026-W47")
    planned(home)
    assert digests(home) == before
    ids = {pl.read_parquet(home.root / name)["run_id"].unique().item() for name in before if "replicas" in name}
    assert sorted(len(run_id) for run_id in ids) == [12, 12]


def test_deployments_planned_in_worker_processes_give_the_same_bytes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(home)
    before = digests(home)
    shutil.rmtree(home.plans)
    monkeypatch.setattr("flows.plan.WORKER_ATTEMPTS", 1)
    with published(home) as connection, worker_pool(2) as pool:
        plan_week(connection, home, write_fleet(home), load_catalog(home), None, no_progress, pool)
    assert digests(home) == before
    assert not (home.staging / "plan").exists()


def test_the_week_before_is_planned_anew_under_another_fleet(home: Home) -> None:
    planned(home)
    before = digests(home)
    dearer = FLEET + '\n[prices]\n"H100-SXM-80GB" = 9.5\n'
    planned(home, "2026-W48", dearer)
    changed = {name.split("/")[1] for name, digest in digests(home).items() if before[name] != digest}
    assert changed == {"week=2026-W47", "week=2026-W48"}
    planned(home)
    assert digests(home) == before


def test_an_attempt_that_still_ran_is_carried_into_the_week(home: Home, tmp_path: Path) -> None:
    with published(home) as connection:
        for week in ("2026-W47", "2026-W48"):
            lay_facts(connection, "chat", week, tmp_path / week)
    work = read_workload(tmp_path / "2026-W48", "chat", "2026-W48")
    first = read_workload(tmp_path / "2026-W47", "chat", "2026-W47")
    assert work.arrived_us[work.is_carried].tolist() == [-30_000_000]
    assert not first.is_carried.any()
    every, hour_us = first.rows_to_replay(), 3600e6
    assert first.rows_to_replay(low_us=0.0, high_us=200 * hour_us).equals(every)
    early = first.rows_to_replay(low_us=0.0, high_us=hour_us)
    assert early.equals(every.filter(first.arrived_us < hour_us))


def test_plan_publishes_its_marts_and_the_command_prints_the_contract(home: Home) -> None:
    write_fleet(home)
    assert plan(home, write_fleet(home), load_catalog(home), None, no_progress, HERE) == "2026-W48"
    ran = subprocess.run(
        [KVLEDGER, "plan", "--home", home.root, "--week", "2026-W47", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["week"] == "2026-W47"
    assert {decision["deployment"] for decision in told["decision"]} == {"chat", "rest"}
    assert {held["phase"] for held in told["tables"]["plan_kv_time"]} >= {"prefill", "decode"}


@pytest.mark.parametrize(
    ("week", "error", "said"),
    [
        ("2026-W40", DataError, r"the logs cover 2026-11-16 to 2026-11-2\d \(2026-W47 to 2026-W48\)"),
        ("last", ConfigError, "not an ISO week; write it like 2026-W47"),
    ],
)
def test_a_week_that_cannot_be_planned(home: Home, week: str, error: type[KvledgerError], said: str) -> None:
    before = digests(home)
    with pytest.raises(error, match=said):
        planned(home, week)
    assert digests(home) == before


def test_another_fleet_than_the_warehouse_was_built_for(home: Home) -> None:
    before = digests(home)
    with pytest.raises(DataError, match="built for another fleet file; run kvledger build"):
        planned(home, fleet=FLEET.replace("replicas = 2", "replicas = 5"))
    assert digests(home) == before


def test_a_fleet_without_a_known_clock_is_refused_before_anything_is_read(home: Home) -> None:
    fleet = write_fleet(home, FLEET.replace('version = "0.19.0"', 'version = "0.19.0"\npipeline_parallel_size = 2'))
    with pytest.raises(CatalogError, match="not for pipeline_parallel_size = 2"):
        check_request(home, fleet, None)
    check_request(home, write_fleet(home), None)


@pytest.mark.parametrize(
    "edited",
    [FLEET.replace('serves = ["chat-model"]', 'serves = ["other"]'), FLEET.replace("Asia/Kolkata", "UTC")],
    ids=["serves", "timezone"],
)
def test_stale_facts_are_not_planned_on(home: Home, edited: str) -> None:
    """Who serves a model is in the facts: after an edit of the fleet file they are those of another fleet."""
    before = digests(home)
    fleet = write_fleet(home, edited)
    with pytest.raises(DataError, match=r"built from another fleet file, .*fleet\.toml.*; run kvledger build"):
        plan(home, fleet, load_catalog(home), None, no_progress, HERE)
    assert digests(home) == before
    write_fleet(home)


def test_patterns_that_cross_on_a_model_of_the_logs_are_refused_by_the_build(tmp_path: Path) -> None:
    made = write_lake(tmp_path, [row(1)])
    crossing = FLEET.replace('["chat-model"]', '["chat-*"]').replace('["*"]', '["*-model"]')
    with pytest.raises(ConfigError, match=r"fleet\.toml: model 'chat-model' is served by a pattern of 'chat' and by"):
        build(made, write_fleet(made, crossing), load_catalog(made), no_progress)


def hourly(hours: int) -> list[dict[str, Any]]:
    """A request every fifty minutes for so many hours, each a little longer than the one before."""
    return [row(n, arrived_at=MONDAY + n * timedelta(minutes=50), prompt_tokens=99 + n, e2e_s=2.0, ttft_s=0.5)
            for n in range(hours * 60 // 50)]  # fmt: skip


def test_a_forecast_stays_as_it_was_made_once_a_later_week_came(tmp_path: Path) -> None:
    """Unless it was made of a part of its week: then the first one of the whole week takes its place, and stays."""
    fleet = FLEET[: FLEET.index("[[deployments]]", 20)]
    made = write_lake(tmp_path, hourly(3 * 168 + 100))

    def forecast(edited: str = fleet) -> pl.DataFrame:
        planned(made, "2026-W50", edited)
        return pl.read_parquet(made.plans / "week=2026-W50/plan_forecasts.parquet")

    build(made, write_fleet(made, fleet), load_catalog(made), no_progress)
    part = forecast()
    shutil.rmtree(made.lake)
    write_lake(tmp_path, hourly(4 * 168 + 20))
    build(made, write_fleet(made, fleet), load_catalog(made), no_progress)
    whole = forecast()
    assert whole["covered_s"][0] > part["covered_s"][0] > 300_000
    assert whole["horizon_week"][0] == "2026-W51"
    assert whole["run_id"][0] != part["run_id"][0]
    assert forecast(fleet + "[planning]\nheadroom_ratio = 0.9\n").equals(whole)
    replicas = pl.read_parquet(made.plans / "week=2026-W50/plan_replicas.parquet")
    assert not set(replicas["run_id"]) & set(whole["run_id"])
