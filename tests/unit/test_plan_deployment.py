"""A deployment's whole plan: typed tables, one binding demand, notes, and weeks that hold next to nothing."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from planner_week import TOOL_WAITS, WEEK, attempt, random_rows, replica, site, workload

from transforms.planner.provenance import weakest
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.planner.sizing.plan_notes import batch_notes
from transforms.planner.sizing.plan_replicas import Site
from transforms.planner.sizing.plan_tables import PLAN_GRAINS, PLAN_TABLES, empty_plan_table, plan_frame, plan_rows
from transforms.planner.steps.hardware import ASSUMED
from transforms.workload import Workload

Rows = list[dict[str, Any]]


def plan(rows: Rows, where: Site | None = None) -> dict[str, pl.DataFrame]:
    return plan_deployment(workload(rows), where or site(), ASSUMED, "abcdef012345")


def steady(count: int = 600, prompt: int = 2000, output: int = 300, **more: Any) -> Rows:
    return [attempt(3600 + 3.0 * n, prompt, output, **more) for n in range(count)]


def waiting() -> Workload:
    """Logged attempts of one session with a tool wait between them."""
    rows = [attempt(3600.0 + 60 * n, queue=0.0, ttft=0.2, e2e=5.0, session_id="s", turn=n) for n in range(2)]
    gap = dict.fromkeys(TOOL_WAITS) | {
        "session_id": "s", "arrived_at": rows[1]["arrived_at"], "kind": "tool", "wait_s": 55.0,
        "prior_context_tokens": 1100,
    }  # fmt: skip
    return workload(rows, [gap])


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
    assert replicas["demand"].to_list() in (["compute", "kv", "latency"], ["none"])
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


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "no traffic this week: nothing to size by, 2 replicas of today kept"),
        ([attempt(5.0, None, None)], "no usable traffic this week (none of 1 attempts has known lengths"),
        ([attempt(5.0, 500_000, 10)], "no usable traffic this week"),
        ([attempt(-5.0, 100, 10, e2e=60.0)], "no traffic this week"),
    ],
    ids=["nothing", "unknown", "refused", "carried"],
)
def test_without_usable_traffic_nothing_binds_and_todays_fleet_is_kept(rows: Rows, said: str) -> None:
    tables = plan(rows)
    row = bound(tables)
    assert row["demand"] == "none"
    assert (row["needed_replicas"], row["needed_gpus"], row["cost_usd_per_hour"]) == (2, 2, 5.0)
    assert [row[name] for name in ("demand_replicas", "low_gpus", "is_slo_reachable", "envelope_gpus")] == [None] * 4
    assert said in row["note"]
    assert "no_traffic" in tables["plan_notes"]["code"].to_list()


def test_counts_headroom_spare_and_cost() -> None:
    tables = plan(steady())
    row = bound(tables)
    assert row["needed_replicas"] == row["replicas_replicas"] + 1
    assert row["cost_usd_per_hour"] == 2.5 * row["needed_gpus"]
    many = bound(plan(steady(output=3000)))
    tokens = 600 * 3000 / 1e6
    assert many["output_cost_usd_per_million_tokens"] == pytest.approx(2.5 * many["needed_gpus"] * 168 / tokens)
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


def test_little_traffic_has_no_price_per_unit() -> None:
    """600 answers of 300 tokens are less than a million tokens, and 58 minutes are less than a day."""
    assert bound(plan(steady()))["output_cost_usd_per_million_tokens"] is None
    assert bound(plan(steady(output=3000), site(covered_s=3480.0)))["output_cost_usd_per_million_tokens"] is None
    few = [row | {"session_id": f"s{n % 99}"} for n, row in enumerate(steady())]
    assert bound(plan(few))["session_cost_usd"] is None
    enough = [row | {"session_id": f"s{n % 100}"} for n, row in enumerate(steady())]
    assert bound(plan(enough))["session_cost_usd"] is not None


@pytest.mark.parametrize(("beyond", "why"), [(True, "an objective is missed"), (False, "do not all fit the KV")])
def test_a_batch_recommended_below_todays_is_noted(beyond: bool, why: str) -> None:
    curve = pl.DataFrame(
        {"batch_requests": [64, 100, 128, 256], "is_recommended": [False, True, False, False],
         "is_today": [False, False, False, True], "is_kv_ok": [True, True, beyond, beyond]}
    )  # fmt: skip
    (said,) = batch_notes(curve)
    assert said.text.startswith("max_num_seqs = 100 is recommended, below today's 256")
    assert why in said.text
    assert not list(batch_notes(curve.with_columns(is_today=pl.col("batch_requests") == 64)))
    assert not list(batch_notes(curve.with_columns(is_recommended=pl.lit(value=False))))


def test_notes_count_what_was_left_out() -> None:
    odd = [attempt(1, None, 5), attempt(2, 5, None), attempt(3, 5, None, is_failed=True), attempt(4, 200_000, 5)]
    tables = plan([*steady(246), *odd])
    noted = {row["code"]: row for row in tables["plan_notes"].iter_rows(named=True)}
    assert {code: row["affected_requests"] for code, row in noted.items()} == {
        "failed_outputs_unknown": 1, "prompts_too_long": 1, "unknown_attempts": 2, "outputs_drawn": 1,
        "latency_replayed": None, "batch_above_recommended": None,
    }  # fmt: skip
    assert noted["unknown_attempts"]["affected_ratio"] == 2 / 250
    assert noted["unknown_attempts"]["text"].startswith("2 of 250 attempts (0.8 %) have unknown lengths (1 prompts, ")
    assert "prompts of max_model_len = 131072 or more: refused, each a miss" in note(tables, "kv")


def test_prompts_answered_beyond_max_model_len_disprove_it() -> None:
    beyond = [attempt(1 + n, 150_000 + n, 40) for n in range(3)]
    unanswered = [attempt(9, 190_000, 700, is_failed=True), attempt(10, 180_000, 0), attempt(-1, 170_000, 90, e2e=9.0)]
    said = note(plan([*steady(245), *beyond, *unanswered]), "kv")
    assert said.startswith(
        "5 of 250 attempts (2 %) have prompts of max_model_len = 131072 or more: refused, each a miss; "
    )
    assert "the log shows that 3 of them were answered" in said
    assert "max_model_len is likely larger, at least 150042 (" in said
    assert "answered" not in note(plan([*steady(245), *unanswered]), "kv")


def test_a_refused_prompt_is_a_miss_of_the_objective() -> None:
    """One in twenty may miss: 4 % refused leave an objective, 6 % leave none for any number of replicas."""
    for refused, is_reachable in ((8, True), (12, False)):
        rows = [*steady(200 - refused), *(attempt(3601 + n, 200_000, 5) for n in range(refused))]
        row = bound(plan(rows))
        assert row["is_slo_reachable"] is is_reachable
    assert row["slo_floor_text"].startswith("no number of replicas meets the objective: 6 % of the prompts")


def test_what_nobody_wrote_down_is_said_to_be_assumed() -> None:
    where = site(assumed_slo=(("ttft_p95_s", 2.0),), assumed_engine=(("max_num_seqs", 1024),))
    tables = plan(steady(), where)
    texts = dict(tables["plan_notes"].select("code", "text").iter_rows())
    assert texts["slo_assumed"].startswith("nobody promised ttft_p95_s = 2 (seconds): assumed")
    assert "max_num_seqs = 1024" in texts["engine_assumed"]
    words = dict(tables["plan_assumptions"].select("name", "provenance").iter_rows())
    assert words["slo_ttft_p95_s"] == words["max_num_seqs"] == "assumed"
    assert "slo_assumed" not in plan(steady())["plan_notes"]["code"].to_list()


def test_a_fleet_of_none_today_is_planned_like_any_other() -> None:
    tables = plan(steady(queue=0.0, ttft=0.2, e2e=5.0), site(now_replicas=0))
    row = bound(tables)
    assert (row["now_gpus"], row["utilization_factor"]) == (0, None)
    assert (row["is_one_lost_ok"], row["is_censored"]) == (False, False)
    assert row["needed_gpus"] == bound(plan(steady(queue=0.0, ttft=0.2, e2e=5.0)))["needed_gpus"]
    assert tables["plan_residency"]["capacity_bytes"].null_count() == tables["plan_residency"].height


def test_failures_that_end_nobody_knows_when_are_counted_as_a_lower_bound() -> None:
    rows = [*steady(20), *(attempt(3601, 500, None, is_failed=True, e2e=e2e) for e2e in (None, None, 3.0))]
    held = plan(rows)["plan_kv_time"].filter("is_failed")
    assert held.select("phase", "attempts_requests", "lower_bound_requests").rows() == [
        ("decode", 3, 2), ("prefill", 3, 2)
    ]  # fmt: skip


def test_a_promise_nobody_keeps_leaves_latency_empty_and_names_the_floor() -> None:
    tables = plan(steady(), site(replica(tpot_p95_s=0.001)))
    latency = tables["plan_replicas"].filter(pl.col("demand") == "latency").row(0, named=True)
    assert latency["demand_replicas"] is None
    assert "a token takes" in latency["note"]
    row = bound(tables)
    assert row["demand"] != "latency"
    assert (row["is_slo_reachable"], row["is_one_lost_ok"]) == (False, False)
    assert row["rests_on_text"] == "KV and compute only"
    assert row["slo_floor_text"] == latency["note"]


def test_a_fleet_that_queues_or_fills_its_pool_censors_what_was_observed() -> None:
    assert not bound(plan(steady(queue=0.1, ttft=0.3, e2e=5.0)))["is_censored"]
    assert bound(plan(steady(queue=1.5, ttft=1.8, e2e=5.0)))["is_censored"]
    full = plan(steady(e2e=2000.0, ttft=0.5), site(replica(64_000)))
    assert bound(full)["is_censored"]
    assert bound(full)["residency_peak_observed_bytes"] > bound(full)["residency_peak_bytes"]
    unseen = plan(steady(prompt=20_000, output=4_000), site(replica(64_000)))
    assert bound(unseen)["residency_peak_observed_bytes"] > 0.9 * bound(unseen)["kv_capacity_bytes"] * 2
    assert not bound(unseen)["is_censored"]


def test_logged_times_are_measured_and_missing_ones_modelled() -> None:
    logged = plan(steady(queue=0.0, ttft=0.2, e2e=5.0))
    assert logged["plan_kv_time"]["provenance"].unique().to_list() == ["measured"]
    pinned = plan_deployment(waiting(), site(), ASSUMED, "abcdef012345")
    for name in ("plan_kv_time", "plan_residency"):
        words = dict(pinned[name].select("phase", "provenance").unique().iter_rows())
        assert words["tool_wait"] == "modelled", name
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
