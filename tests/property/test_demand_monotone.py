"""More requests never ask for less, more blocks never ask for more, and nothing falls below the physical floors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import attempt, random_rows, replica, workload

from transforms.planner.residency.occupancy import request_residency, total_block_bytes
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.timeline import slo_timeline
from transforms.planner.residency.traffic import windows_of
from transforms.planner.sizing.demand import compute_demand, compute_work, kv_demand, latency_demand, week_peak
from transforms.planner.sizing.gpus import whole_replicas
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.step_time import ttft_floor_s

ROUNDING = 1 - 1e-9
HEADROOM = 0.3
Rows = list[dict[str, Any]]


def demands(rows: Rows, one: Replica) -> tuple[float, float]:
    pace = slo_pace(one)
    timeline = slo_timeline(workload(rows), one, pace)
    kv = week_peak(total_block_bytes(request_residency(timeline, one)))
    compute = week_peak(compute_work(timeline, one, pace))
    return kv_demand(kv.value, one, HEADROOM), compute_demand(compute.value, HEADROOM)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 60), more=st.integers(1, 30))
def test_added_requests_never_lower_kv_or_compute_demand(seed: int, count: int, more: int) -> None:
    rows = random_rows(seed, count + more, 7200.0)
    fewer, all_of_them = demands(rows[:count], replica()), demands(rows, replica())
    assert all_of_them[0] >= fewer[0] * ROUNDING
    assert all_of_them[1] >= fewer[1] * ROUNDING


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    tokens=st.integers(20_000, 2_000_000),
    factor=st.floats(1.0, 4.0),
    tpot_s=st.sampled_from([0.01, 0.03, 0.05, 0.2]),
)
def test_more_blocks_never_raise_kv_demand(seed: int, tokens: int, factor: float, tpot_s: float) -> None:
    rows = random_rows(seed, 40, 600.0)
    small = replica(tokens // 16 * 16, tpot_p95_s=tpot_s, max_num_seqs=10_000)
    large = replica(int(tokens * factor) // 16 * 16, tpot_p95_s=tpot_s, max_num_seqs=10_000)
    assert demands(rows, large)[0] <= demands(rows, small)[0] / ROUNDING


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 200))
def test_demand_is_never_below_the_floors(seed: int, count: int) -> None:
    """No efficiency lets prompts be computed in less than their work at full peak takes."""
    one = replica(ttft_p95_s=1.0)
    rows = random_rows(seed, count, 30.0)
    pace = slo_pace(one)
    timeline = slo_timeline(workload(rows), one, pace)
    work = compute_work(timeline, one, pace)
    prompts = zip(timeline.prompt_tokens, timeline.cached_tokens, timeline.prefill_us, strict=True)
    floor_s = sum(
        ttft_floor_s(one.step, p, c) for p, c, started_us in prompts if started_us >= 0
    )  # the rest is last week's
    assert work.sum() >= floor_s


def test_demand_does_not_depend_on_how_slow_todays_fleet_is() -> None:
    """The same traffic logged from a quick and from an overrun fleet asks for the same memory and compute."""
    rows = random_rows(3, 200, 600.0)
    slow = [row | {"queue_s": 20.0, "ttft_s": 40.0, "e2e_s": 400.0} for row in rows if row["output_tokens"]]
    quick = [row | {"queue_s": 0.0, "ttft_s": 0.1, "e2e_s": 2.0} for row in slow]
    in_week = [[row for row in side if row["week"] == "2026-W47"] for side in (slow, quick)]
    assert demands(in_week[0], replica()) == demands(in_week[1], replica())


def steady(rate_per_s: float, prompt: int, output: int, seconds: int = 3600) -> Rows:
    random = np.random.default_rng(11)
    arrivals = np.sort(random.uniform(0, seconds, int(rate_per_s * seconds)))
    return [attempt(float(at), prompt, output) for at in arrivals]


def replicas(rows: Rows, one: Replica) -> int | None:
    return latency_demand(windows_of(workload(rows), one), one).replicas


def test_latency_demand_grows_with_rate_and_shrinks_with_patience() -> None:
    one = replica(ttft_p95_s=0.5)
    counts = [replicas(steady(rate, 6000, 200), one) or 0 for rate in (1, 4, 8, 16)]
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    patient = replica(ttft_p95_s=20.0)
    assert (replicas(steady(16, 6000, 200), patient) or 0) <= counts[-1]


def test_latency_demand_is_no_less_than_the_work_takes() -> None:
    """At 20 requests/s of 6,000 new tokens each, prefill alone keeps three replicas busy at the assumed efficiency."""
    one = replica()
    work_s = 20 * 6000 * one.step.token_flop / one.step.flop_per_s
    assert (replicas(steady(20, 6000, 10), one) or 0) >= whole_replicas(work_s)


@pytest.mark.parametrize(("ttft_p95_s", "tpot_p95_s"), [(0.01, 0.05), (2.0, 0.005)])
def test_a_promise_nobody_can_keep_names_the_floor(ttft_p95_s: float, tpot_p95_s: float) -> None:
    one = replica(ttft_p95_s=ttft_p95_s, tpot_p95_s=tpot_p95_s)
    found = latency_demand(windows_of(workload(steady(1, 6000, 200)), one), one)
    assert found.replicas is None
    text = found.floor_text(one) or ""
    assert "no number of replicas meets" in text
    assert "on an idle replica" in text


def test_windows_with_few_requests_do_not_judge_unless_there_is_no_other() -> None:
    one = replica()
    busy = steady(1, 1000, 100)
    lonely = attempt(40_000.0, 130_000, 100)
    assert replicas([*busy, lonely], dataclasses.replace(one, ttft_p95_s=1.0)) == 1
    alone = latency_demand(windows_of(workload([lonely]), one), replica(ttft_p95_s=20.0))
    assert alone.replicas == 1
    assert alone.is_thin


def test_windows_are_those_of_the_promise() -> None:
    one = replica(window_s=600)
    windows = windows_of(workload([attempt(0.0), attempt(599.0), attempt(600.0)]), one)
    assert [(w.start_s, w.requests) for w in windows] == [(0, 2), (600, 1)]
    assert windows[0].traffic.requests_per_s == pytest.approx(1 / 60)
