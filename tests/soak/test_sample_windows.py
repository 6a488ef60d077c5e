"""The whole sample: its busiest hours, replayed warm, ask for as many replicas as its whole weeks do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flows.catalog import load_catalog
from flows.deployments import place
from flows.fleet import load_fleet
from flows.home import Home
from flows.plan_facts import lay_facts, read_workload
from flows.sites import site_of
from flows.warehouse import published
from transforms.planner.sizing.latency_replay import Replays, fewest_replicas
from transforms.planner.sizing.plan_deployment import replayed_demands
from transforms.planner.sizing.plan_replicas import Site, replica_rows
from transforms.planner.sizing.replay_week import whole_week
from transforms.workload import Workload

KVLEDGER = Path(sys.executable).parent / "kvledger"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("sample")
    for command in (["sample"], ["review", "--no-prefect"]):
        subprocess.run([KVLEDGER, *command, "--home", folder], check=True, capture_output=True)
    return Home(folder)


def worked(home: Home, deployment: str, week: str, folder: Path) -> tuple[Workload, Site]:
    """Workload of one deployment and week, and its site."""
    catalog, fleet = load_catalog(home), load_fleet(None, home)
    found = next(one for one in fleet.fleet.deployments if one.name == deployment)
    with published(home) as connection:
        lay_facts(connection, deployment, week, folder)
    return read_workload(folder, deployment, week), site_of(place(found, fleet, catalog), fleet, catalog, covered_s=0.0)


@pytest.mark.soak
@pytest.mark.parametrize("week", ["2026-W46", "2026-W47"])
@pytest.mark.parametrize("deployment", ["chat", "coding-agent", "summariser"])
def test_the_busiest_hours_answer_for_the_week(home: Home, deployment: str, week: str, tmp_path: Path) -> None:
    latency = replayed_demands(*worked(home, deployment, week, tmp_path)).latency
    assert latency.replay is not None
    every = Replays(latency.replay.replays.week, whole_week(latency.replay.replays.week))
    assert latency.replicas == fewest_replicas(every, latency.replicas or 1)


@pytest.mark.soak
@pytest.mark.parametrize("deployment", ["coding-agent", "summariser"])
def test_the_latency_demand_keeps_the_objectives_and_one_replica_fewer_does_not(
    home: Home, deployment: str, tmp_path: Path
) -> None:
    """In replays made anew; the plan keeps them at today's traffic and prints the factor at which it first does not."""
    work, where = worked(home, deployment, "2026-W47", tmp_path)
    found = replayed_demands(work, where)
    latency = found.latency
    assert latency.replay is not None
    assert latency.replicas is not None
    assert latency.replicas >= 3
    made = latency.replay.replays
    anew = Replays(made.week, made.stretches)
    assert anew.is_kept(latency.replicas)
    assert not anew.is_kept(latency.replicas - 1)
    planned = replica_rows(work, found, where)[0]
    assert anew.lowest(planned["needed_replicas"]).is_kept
    assert planned["slo_missed_factor"] > 1
