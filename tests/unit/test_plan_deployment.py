"""A deployment's whole plan: typed tables, one binding demand, notes, and weeks that hold next to nothing."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from planner_week import WEEK, attempt, random_rows, replica, site, workload

from transforms.planner.hardware import ASSUMED
from transforms.planner.plan_deployment import plan_deployment
from transforms.planner.plan_replicas import Site
from transforms.planner.plan_tables import PLAN_GRAINS, PLAN_TABLES, empty_plan_table, plan_frame, plan_rows
from transforms.planner.provenance import weakest

Rows = list[dict[str, Any]]


def plan(rows: Rows, where: Site | None = None) -> dict[str, pl.DataFrame]:
    return plan_deployment(workload(rows), where or site(), ASSUMED, "abcdef012345")


def steady(count: int = 600, prompt: int = 2000, output: int = 300, **more: Any) -> Rows:
    return [attempt(3600 + 3.0 * n, prompt, output, **more) for n in range(count)]


def bound(tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
    return tables["plan_replicas"].filter("is_binding").row(0, named=True)


def note(tables: dict[str, pl.DataFrame], demand: str) -> str:
    return tables["plan_replicas"].filter(pl.col("demand") == demand)["note"].item() or ""


def check_shape(tables: dict[str, pl.DataFrame]) -> None:
    assert set(tables) == set(PLAN_TABLES)
    for name, frame in tables.items():
        assert dict(frame.schema) == PLAN_TABLES[name], name
        assert frame.n_unique(PLAN_GRAINS[name]) == frame.height, name
        assert not any(frame[column].is_nan().any() for column, kind in frame.schema.items() if kind == pl.Float64), (
            name
        )
    replicas = tables["plan_replicas"]
    assert replicas["demand"].to_list() == ["compute", "kv", "latency"]
    assert replicas["is_binding"].sum() == 1
    assert bound(tables)["replicas_replicas"] == replicas["replicas_replicas"].max()


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [attempt(5.0)],
        [attempt(5.0, None, None)],
        [attempt(5.0, 1, 0)],
        [attempt(5.0, 500_000, 10)],
        [attempt(5.0, 100, None, is_failed=True)],
        [attempt(5.0, 100, None, is_failed=True, e2e=0.0)],
        [attempt(-5.0, 100, 10, e2e=60.0)],
        [attempt(604_799.9, 100, 1000, e2e=100.0)],
        steady(300, e2e=8.0, ttft=0.2, queue=0.0),
        random_rows(1, 300),
    ],
    ids=["nothing", "one", "unknown", "empty answer", "too long", "failed", "failed at once", "carried", "at the end",
         "logged", "mixed"],
)  # fmt: skip
def test_every_week_has_a_whole_plan(rows: Rows) -> None:
    check_shape(plan(rows))


def test_a_week_without_traffic_keeps_one_replica_and_says_so() -> None:
    tables = plan([])
    assert bound(tables)["needed_replicas"] == 1
    assert "no traffic this week" in note(tables, "kv")
    assert tables["plan_residency"].is_empty()
    assert bound(tables)["envelope_gpus"] is None


def test_counts_headroom_spare_and_cost() -> None:
    tables = plan(steady())
    row = bound(tables)
    assert row["needed_replicas"] == row["replicas_replicas"] + 1
    assert row["cost_usd_per_hour"] == 2.5 * row["needed_gpus"]
    tokens = 600 * 300 / 1e6
    assert row["output_cost_usd_per_million_tokens"] == pytest.approx(2.5 * row["needed_gpus"] * 168 / tokens)
    kv = tables["plan_replicas"].filter(pl.col("demand") == "kv").row(0, named=True)
    assert kv["demand_replicas"] == pytest.approx(1.3 * kv["residency_peak_bytes"] / kv["kv_capacity_bytes"])
    assert kv["utilization_factor"] == pytest.approx(kv["residency_peak_bytes"] / kv["kv_capacity_bytes"] / 2)
    assert kv["residency_max_bytes"] >= kv["residency_peak_bytes"]
    unpriced = bound(plan(steady(), site(price=None)))
    assert unpriced["cost_usd_per_hour"] is None


def test_memory_binds_where_long_contexts_meet_a_small_pool() -> None:
    rows = [attempt(3600 + 0.5 * n, 30_000, 400, cached_prompt_tokens=29_500) for n in range(400)]
    tables = plan(rows, site(replica(64_000, ttft_p95_s=30.0)))
    assert bound(tables)["demand"] in ("kv", "latency")
    kv = tables["plan_replicas"].filter(pl.col("demand") == "kv")["demand_replicas"].item()
    roomy = plan(rows, site(replica(640_000, ttft_p95_s=30.0)))["plan_replicas"]
    assert kv > 3 * roomy.filter(pl.col("demand") == "kv")["demand_replicas"].item()


def test_notes_count_what_was_left_out() -> None:
    odd = [attempt(1, None, 5), attempt(2, 5, None), attempt(3, 5, None, is_failed=True), attempt(4, 200_000, 5)]
    rows = [*steady(250), *odd]
    text = note(plan(rows), "kv")
    assert "1 attempts of unknown prompt length left out" in text
    assert "1 answered attempts of unknown output length left out" in text
    assert "1 failed attempts of unknown output hold their prompt only" in text
    assert "1 prompts of max_model_len = 131072 or more left out" in text


def test_prompts_the_engine_refuses_are_no_demand() -> None:
    refused = steady(300, prompt=500_000, output=10)
    assert bound(plan(refused))["needed_replicas"] == 1
    assert bound(plan(refused))["residency_peak_bytes"] == 0


def test_a_promise_nobody_keeps_leaves_latency_empty_and_names_the_floor() -> None:
    tables = plan(steady(), site(replica(tpot_p95_s=0.001)))
    latency = tables["plan_replicas"].filter(pl.col("demand") == "latency").row(0, named=True)
    assert latency["demand_replicas"] is None
    assert "a token takes" in latency["note"]
    assert bound(tables)["demand"] != "latency"


def test_a_fleet_that_queues_or_fills_its_pool_censors_what_was_observed() -> None:
    assert not bound(plan(steady(queue=0.1, ttft=0.3, e2e=5.0)))["is_censored"]
    assert bound(plan(steady(queue=1.5, ttft=1.8, e2e=5.0)))["is_censored"]
    full = plan(steady(e2e=2000.0, ttft=0.5), site(replica(64_000)))
    assert bound(full)["is_censored"]
    assert bound(full)["residency_peak_observed_bytes"] > bound(full)["residency_peak_bytes"]


def test_logged_times_are_measured_and_missing_ones_modelled() -> None:
    logged = plan(steady(queue=0.0, ttft=0.2, e2e=5.0))
    assert logged["plan_kv_time"]["provenance"].unique().to_list() == ["measured"]
    bare = plan(steady())
    assert bare["plan_kv_time"]["provenance"].unique().to_list() == ["modelled"]
    modelled = bare["plan_residency"].filter(pl.col("phase") == "decode")
    paces = dict(modelled.select("pace", "provenance").unique().iter_rows())
    assert paces == {"observed": "modelled", "slo": "assumed"}
    assert bound(bare)["provenance"] == "assumed"
    assert weakest("measured", "calibrated") == "calibrated"
    assert weakest() == "measured"


def test_published_residency_and_kv_time_agree() -> None:
    rows = [row for row in random_rows(9, 400) if row["week"] == WEEK]
    tables = plan(rows)
    swept = tables["plan_residency"].filter((pl.col("pace") == "observed") & (pl.col("phase") != "tool_wait"))
    held = tables["plan_kv_time"].filter(pl.col("phase") != "tool_wait")
    assert swept["residency_mean_bytes"].sum() * 300 == pytest.approx(held["kv_time_byte_s"].sum(), rel=1e-9)


def test_five_days_of_traffic_have_an_interval() -> None:
    days = [row | {"arrived_at": row["arrived_at"] + timedelta(days=day)} for day in range(6) for row in steady(300)]
    row = bound(plan(days))
    assert row["low_gpus"] <= row["needed_gpus"] <= row["high_gpus"]
    assert bound(plan(steady(300)))["low_gpus"] is None


def test_same_input_same_rows() -> None:
    first, second = plan(random_rows(4, 200)), plan(random_rows(4, 200))
    assert all(first[name].equals(second[name]) for name in first)


def test_whole_nodes() -> None:
    where = site()
    nodes = dataclasses.replace(where, terms=dataclasses.replace(where.terms, is_whole_node=True))
    assert bound(plan(steady(), nodes))["needed_gpus"] % 8 == 0


def test_tables_refuse_unknown_and_missing_columns() -> None:
    keys = {"run_id": "r", "week": WEEK, "deployment_id": "d", "scenario_id": "today"}
    with pytest.raises(KeyError, match="unknown columns"):
        plan_rows("plan_latency", keys, [{"measure": "ttft", "seconds": 1.0}])
    with pytest.raises(KeyError, match="lacks"):
        plan_frame("plan_latency", keys, pl.DataFrame({"measure": ["ttft"]}))
    assert plan_rows("plan_latency", keys, []).equals(empty_plan_table("plan_latency"))
