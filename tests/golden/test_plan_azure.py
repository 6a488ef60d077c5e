"""The plan of a public trace, pinned: Azure 2023 conversations, Llama-3.1-8B on one H100 a replica.

A change that moves one of these numbers says so, and why, in its commit message.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from planner_week import TOOL_WAITS, azure_rows

from flows.calibrations import deployment_calibration
from flows.catalog import load_catalog
from flows.deployments import place
from flows.fleet import LoadedFleet
from flows.sites import site_of
from transforms.fleet import parse_fleet
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.workload_rows import make_workload

FLEET = {
    "deployments": [
        {
            "name": "llama",
            "serves": ["*"],
            "model": "meta-llama/Llama-3.1-8B-Instruct",
            "gpu": "H100-SXM-80GB",
            "replicas": 2,
            "engine": {"version": "0.19.0", "max_model_len": 131_072, "max_num_seqs": 256},
        }
    ]
}


@pytest.mark.shared
def test_azure_conversations_on_h100(shared_dir: Path) -> None:
    catalog = load_catalog(None)
    fleet = LoadedFleet(parse_fleet(FLEET, "fleet"), Path("fleet.toml"), Path(), "0", is_example=False)
    placed = place(fleet.fleet.deployments[0], fleet, catalog)
    site = site_of(placed, fleet, catalog, covered_s=3480.0)
    work = make_workload(azure_rows(shared_dir), pl.DataFrame(schema=TOOL_WAITS), "llama", "2023-W46")
    tables = plan_deployment(work, site, deployment_calibration(placed, fleet, catalog), "0" * 12)
    rows = {row["demand"]: row for row in tables["plan_replicas"].iter_rows(named=True)}
    found = {demand: row["demand_replicas"] for demand, row in rows.items()}
    assert found == pytest.approx({"compute": 0.816717, "kv": 0.234319, "latency": 1.0}, rel=1e-4)
    row = rows["compute"]
    assert row["is_binding"]
    assert (row["needed_replicas"], row["needed_gpus"], row["envelope_gpus"]) == (2, 2, 1)
    assert row["residency_peak_bytes"] / 2**30 == pytest.approx(9.93144, rel=1e-4)
    assert row["residency_max_bytes"] / 2**30 == pytest.approx(11.8462, rel=1e-4)
    assert row["planned_batch_requests"] == 256
    assert row["step_s"] == pytest.approx(0.0290843, rel=1e-4)
    held = tables["plan_kv_time"]["kv_time_byte_s"].sum() / 2**30
    assert held == pytest.approx(4569.03, rel=1e-4)
