"""Replicas of several data-parallel ranks: a dense one of n plans as n of one rank each, but that it comes whole."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import polars as pl
import pytest
from planner_week import STEP, TOKEN_BYTES, TOOL_WAITS, attempt, random_rows, replica, site, workload
from polars.testing import assert_frame_equal

from transforms.fleet import Engine
from transforms.planner.replay.replay_types import Router
from transforms.planner.sizing.gpus import Terms
from transforms.planner.sizing.plan_deployment import plan_deployment, replayed_demands
from transforms.planner.sizing.plan_replicas import Site
from transforms.planner.sizing.replay_week import replay_week, router_of
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.hardware import ASSUMED
from transforms.planner.weeks.ttft_causes import causes_s
from transforms.planner.weeks.week_changes import change_rows
from transforms.planner.weeks.week_taken import taken_week
from transforms.planner.whatif.needed import needed_fleet
from transforms.workload import Workload

RANKS = 4
SLOW = replica(
    60_000,
    step=dataclasses.replace(STEP, flop_per_s=STEP.flop_per_s / 40),
    ttft_p95_s=6.5,
    tpot_p95_s=1.0,
    max_num_batched_tokens=512,
    has_prefix_caching=False,
)
"""Prefill takes a second a thousand tokens; nothing is cached, so that every router goes by load."""
SAME_BUT_COUNTS = ("plan_residency", "plan_kv_time", "plan_kv_attribution", "plan_latency", "plan_tool_wait_policies")


def of_ranks(one: Replica, ranks: int) -> Replica:
    """A replica of so many engines like `one`."""
    return dataclasses.replace(
        one,
        engine=Engine(data_parallel_size=ranks),
        kv_capacity_bytes=ranks * one.kv_capacity_bytes,
        kv_capacity_tokens=ranks * one.kv_capacity_tokens,
        gpus=ranks * one.gpus,
    )


def fleet(one: Replica, ranks: int, engines: int, spare: int = 0) -> Site:
    """`engines` engines like `one` today, so many to a replica."""
    terms = Terms(ranks * one.gpus, 8, is_whole_node=False, spare_replicas=spare)
    return site(of_ranks(one, ranks), now_replicas=engines // ranks, terms=terms)


def traffic(requests: int, prompt: float = 7.5) -> Workload:
    """A Poisson hour of lognormal lengths, and some tool waits."""
    random = np.random.default_rng(5)
    rows = [
        attempt(float(at), int(random.lognormal(prompt, 0.8)) + 1, int(random.lognormal(5.0, 0.7)) + 1, tenant="t")
        for at in np.sort(random.uniform(0, 3600, requests))
    ]
    gaps = [
        dict.fromkeys(TOOL_WAITS)
        | {"session_id": f"s{n}", "turn": 1, "arrived_at": row["arrived_at"], "kind": "tool", "wait_s": 5.0 + n,
           "prior_context_tokens": 900 + n}
        for n, row in enumerate(rows[::100])
    ]  # fmt: skip
    return workload(rows, gaps)


def plan(work: Workload, where: Site) -> dict[str, pl.DataFrame]:
    return plan_deployment(work, where, ASSUMED, "abcdef012345")


@pytest.mark.parametrize(("tokens", "ttft_s", "binds"), [(60_000, 6.5, "latency"), (10_000, 12.0, "kv")])
def test_a_dense_replica_of_ranks_plans_as_so_many_of_one(tokens: int, ttft_s: float, binds: str) -> None:
    held = {"kv_capacity_tokens": tokens, "kv_capacity_bytes": tokens * TOKEN_BYTES}
    one = dataclasses.replace(SLOW, **held, ttft_p95_s=ttft_s)
    work = traffic(3000 if binds == "latency" else 1500)
    apart, together = plan(work, fleet(one, 1, 8)), plan(work, fleet(one, RANKS, 8))
    for name in SAME_BUT_COUNTS:
        assert_frame_equal(apart[name], together[name], check_exact=True)
    curves = [tables["plan_batch_curve"].drop(pl.selectors.starts_with("burst")) for tables in (apart, together)]
    assert_frame_equal(*curves, check_exact=True)  # of one rank
    by_demand = [{row["demand"]: row for row in tables["plan_replicas"].iter_rows(named=True)}
                 for tables in (apart, together)]  # fmt: skip
    for name in ("kv", "compute"):
        alone, ranked = (rows[name] for rows in by_demand)
        assert ranked["demand_replicas"] * RANKS == pytest.approx(alone["demand_replicas"], rel=1e-12)
        assert ranked["utilization_factor"] == pytest.approx(alone["utilization_factor"], rel=1e-12)
    alone, ranked = (rows["latency"] for rows in by_demand)
    assert alone["demand_replicas"] > (RANKS if binds == "latency" else 1)
    assert by_demand[0][binds]["is_binding"]
    assert ranked["demand_replicas"] == math.ceil(alone["demand_replicas"] / RANKS)
    assert ranked["needed_gpus"] == RANKS * math.ceil(alone["needed_replicas"] / RANKS)
    for name in ("now_gpus", "compute_gpu_s_per_s", "residency_peak_bytes", "residency_max_bytes", "is_censored"):
        assert ranked[name] == pytest.approx(alone[name], rel=1e-12), name
    for name in ("kv_capacity_bytes", "resident_requests", "planned_batch_requests"):
        assert ranked[name] == RANKS * alone[name], name
    if binds == "kv":  # ranks even out what one engine alone must bear
        assert ranked["sustained_low_requests_per_s"] > RANKS * alone["sustained_low_requests_per_s"]
    shown = ("rate_factor", "rate_requests_per_s", "attainment_ratio")
    today = [tables["plan_rate_curve"].filter("is_today").select(shown) for tables in (apart, together)]
    assert_frame_equal(*today, check_exact=True)


def test_weeks_are_compared_alike() -> None:
    """What moved GPUs and the first token does not depend on how many engines are called a replica."""
    weeks = traffic(1000), traffic(1500)
    sides = []
    for where in (fleet(SLOW, 1, 8), fleet(SLOW, RANKS, 8)):
        taken = [taken_week(week, where.replica) for week in weeks]
        hours = (taken[0].first_tokens.hour, taken[1].first_tokens.hour)
        causes = causes_s(hours, where.replica, where.now_replicas)
        changes = {row["mover"]: row["demand_part_gpus"] for row in change_rows(*taken, where)}
        sides.append((causes, changes, needed_fleet(weeks[0], where, is_replayed=False)["residency_peak_bytes"]))
    (causes, changes, peak), (ranked_causes, ranked_changes, ranked_peak) = sides
    assert causes == ranked_causes
    assert ranked_changes == pytest.approx(changes, rel=1e-9, abs=1e-9)
    assert peak == ranked_peak


def test_a_large_replica_comes_whole_with_its_gpus() -> None:
    work = traffic(250)
    row = plan(work, fleet(SLOW, 64, 64, spare=1))["plan_replicas"].row(0, named=True)
    assert (row["needed_replicas"], row["needed_gpus"], row["now_gpus"]) == (2, 128, 64)
    assert row["cost_usd_per_hour"] == 2.5 * 128


def test_ranks_are_chosen_by_load_and_what_their_steps_wait_for_is_assumed() -> None:
    cached = dataclasses.replace(SLOW, has_prefix_caching=True)
    ranks = of_ranks(cached, RANKS)
    assert (router_of(cached), router_of(ranks)) == ("prefix_affinity", "least_outstanding")
    week = replay_week(workload(random_rows(3, 300)), ranks, seed=1)
    assert week is not None
    assert (week.settings.router, week.settings.replicas, week.settings.ranks) == (
        Router.LEAST_OUTSTANDING,
        RANKS,
        RANKS,
    )
    assert week.settings.on_replicas(3).replicas == 3 * RANKS
    assert week.settings.pool.units * RANKS == ranks.kv_capacity_bytes
    experts = dataclasses.replace(SLOW.step, experts=64.0, experts_per_token=4.0, expert_bytes=1e10, expert_s=0.004)
    dense, mixed = (fleet(one, RANKS, RANKS) for one in (SLOW, dataclasses.replace(SLOW, step=experts)))
    spread = dataclasses.replace(mixed, terms=dataclasses.replace(mixed.terms, gpus_per_node=2))
    found = [
        dict(plan(traffic(100), where)["plan_assumptions"].select("name", "value_text").iter_rows())
        for where in (dense, mixed, spread)
    ]
    assert [one.get("rank_load") for one in found] == [None, "equal", "equal"]
    assert [one.get("node_link") for one in found] == [None, None, "as inside a node"]


def test_one_request_is_prefilled_by_one_rank() -> None:
    """More ranks do not make a first token come sooner than one of them can."""
    work = traffic(400, prompt=9.5)
    strict = dataclasses.replace(SLOW, ttft_p95_s=1.0)
    found = [replayed_demands(work, fleet(strict, ranks, 8)).latency for ranks in (1, RANKS)]
    assert [one.replicas for one in found] == [None, None]
    texts = [one.floor_text(of_ranks(strict, 1)) or "" for one in found]
    assert texts[0] == texts[1]
