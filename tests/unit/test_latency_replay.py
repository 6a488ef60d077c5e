"""Replicas for the latency objective by replay: the smallest that keeps it, warm windows, refused and unknown ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl
import pytest
from planner_week import STEP, attempt, replica, site, workload

from transforms.planner.replay.engine import replay
from transforms.planner.replay.slices import sliced
from transforms.planner.replay.sustainable_rate import kept_both
from transforms.planner.sizing.demands_of_week import demands_of_week
from transforms.planner.sizing.latency_replay import Replays, fewest_replicas
from transforms.planner.sizing.plan_deployment import plan_deployment, replayed_demands
from transforms.planner.sizing.replay_week import (
    ReplayWeek,
    replay_week,
    stretches,
    whole_week,
)
from transforms.planner.sizing.replica import Replica
from transforms.planner.sizing.replica_capacity import oversubscribed, sustained
from transforms.planner.steps.batch_curve import batch_curve
from transforms.planner.steps.hardware import ASSUMED
from transforms.workload import Workload

Rows = list[dict[str, Any]]


SLOW = replica(step=dataclasses.replace(STEP, flop_per_s=STEP.flop_per_s / 10), ttft_p95_s=2.0, tpot_p95_s=0.2)
"""Five thousand prompt tokens a second: a few thousand requests an hour take several of these."""


def hours(seed: int, per_hour: list[int], prompt: float = 7.5, output: float = 5.0) -> Rows:
    """Poisson arrivals of lognormal lengths, so many in each hour."""
    random = np.random.default_rng(seed)
    rows = []
    for hour, count in enumerate(per_hour):
        for at in np.sort(random.uniform(0, 3600, count)):
            p, o = random.lognormal(prompt, 0.8), random.lognormal(output, 0.7)
            rows.append(attempt(3600.0 * hour + float(at), int(p) + 1, int(o) + 1))
    return rows


def week_of(rows: Rows, one: Replica) -> tuple[Workload, ReplayWeek]:
    made = workload(rows)
    found = replay_week(made, one, 1)
    assert found is not None
    return made, found


def worst_hour(week: ReplayWeek, replicas: int) -> float:
    """Lowest share kept in any full hour, from one replay of everything, counted here by hand."""
    result = replay(week.trace.columns, dataclasses.replace(week.settings, replicas=replicas), week.costs)
    is_kept = kept_both(result, week.replica.ttft_p95_s, week.replica.tpot_p95_s)
    hour = np.floor(week.arrived_s / 3600)
    shares = [is_kept[hour == n].mean() for n in np.unique(hour) if (hour == n).sum() >= 200]
    return float(min(shares))


def test_the_count_keeps_the_objective_and_one_fewer_does_not() -> None:
    one = SLOW
    rows = hours(3, [150, 800, 2500, 4500, 300])
    made, week = week_of(rows, one)
    found = replayed_demands(made, site(one)).latency
    count = found.replicas
    assert count is not None
    assert count >= 3
    assert worst_hour(week, count) >= 0.95
    assert worst_hour(week, count + 1) >= 0.95
    assert worst_hour(week, count - 1) < 0.95
    assert found.replay is not None
    assert found.replay.window == 3
    assert found.replay.attained_ratio >= 0.95 > (found.replay.below_ratio or 1.0)
    assert found.window is not None
    assert found.window.start_s == 3 * 3600


@pytest.mark.parametrize("guess", [1, 2, 5, 40])
def test_the_search_ends_at_the_same_count_wherever_it_starts(guess: int) -> None:
    _made, week = week_of(hours(5, [3000]), SLOW)
    assert fewest_replicas(Replays(week, whole_week(week)), guess) == fewest_replicas(
        Replays(week, whole_week(week)), 3
    )


def test_busiest_windows_stand_for_the_week() -> None:
    _made, week = week_of(hours(7, [199, 300, 2000, 300, 300, 2500, 400, 300, 1900, 250]), SLOW)
    assert week.survey.full.tolist() == list(range(1, 10))
    chosen = week.survey.busiest()
    assert {2, 5, 8} <= set(chosen)
    some, every = Replays(week, stretches(week, chosen)), Replays(week, whole_week(week))
    assert fewest_replicas(some, 2) == fewest_replicas(every, 2)


def test_the_warm_up_is_replayed_and_not_counted() -> None:
    one = replica()
    _made, week = week_of(hours(1, [300, 300]), one)
    (stretch,) = stretches(week, [1])
    p99_s = float(np.quantile(week.e2e_s, 0.99))
    assert stretch.low_s <= 3600 - 2 * p99_s
    assert stretch.high_s >= 7200
    result, window = Replays(week, [stretch]).result(stretch, 1)
    assert len(result.status) > (window == 1).sum() == 300


def test_prompts_that_never_fit_are_misses() -> None:
    one = replica()
    rows = [*hours(2, [300]), *(attempt(100.0 + n, 200_000, 5) for n in range(12))]
    found = replayed_demands(workload(rows), site(one)).latency
    assert found.replicas == 1
    found = replayed_demands(workload([*rows, *(attempt(200.0 + n, 200_000, 5) for n in range(8))]), site(one)).latency
    assert found.replicas is None
    assert (found.floor_text(one) or "").startswith("no number of replicas meets the objective: 6.2 % of the prompts")


def test_turns_go_where_their_context_is() -> None:
    """Twelve long sessions: with their context cached a turn is quick, so the replay must find it there."""
    rows = [
        attempt(60.0 * turn + 5.0 * session, 3000 + 500 * turn, 50, session_id=f"s{session}", turn=turn, e2e=3.0)
        for session in range(12)
        for turn in range(20)
    ]
    found = replayed_demands(workload(rows), site(replica(ttft_p95_s=0.3))).latency
    assert found.replay is not None
    assert (found.replay.cached_ratio or 0) > 0.8
    cold = replayed_demands(workload(rows), site(replica(ttft_p95_s=0.3, has_prefix_caching=False))).latency
    assert cold.replay is not None
    assert cold.replay.cached_ratio == 0


def test_unknown_outputs_are_drawn_and_failures_hold_no_output() -> None:
    rows = hours(4, [400])
    for row in rows[::4]:
        row["output_tokens"] = None
    for row in rows[::8]:
        row["is_failed"] = True
    _made, week = week_of(rows, replica())
    assert week.trace.drawn_outputs == 50
    assert (week.trace.columns.output_tokens[::8] == 0).all()


def test_what_cannot_be_replayed_is_judged_by_closed_forms() -> None:
    few = replayed_demands(workload(hours(1, [199])), site()).latency
    assert few.replay is None
    assert few.replicas == 1
    unchunked = replica(engine=dataclasses.replace(replica().engine, enable_chunked_prefill=False))
    assert replayed_demands(workload(hours(1, [300])), site(unchunked)).latency.replay is None


def test_a_replica_has_two_capacities_and_the_needed_fleet_room_to_grow() -> None:
    rows = hours(3, [300, 4000], prompt=7.0)
    tables = plan_deployment(workload(rows), site(SLOW), ASSUMED, "0" * 12)
    row = tables["plan_replicas"].filter("is_binding").row(0, named=True)
    work = demands_of_week(workload(rows), SLOW, 2).slo.at(slice(None))
    seconds = (work.end_us - work.prefill_us).sum() / 1e6
    prefill = (work.first_us - work.prefill_us) / 1e6
    decode = (work.end_us - work.first_us) / 1e6
    held = (work.prompt_tokens / 2 * prefill + (work.prompt_tokens + work.output_tokens / 2) * decode).sum() / seconds
    assert row["resident_requests"] == int(SLOW.kv_capacity_tokens / held)
    latency = tables["plan_replicas"].filter(demand="latency")["replicas_replicas"].item()
    share = 4000 / 3600 / latency
    assert 0 < row["sustained_low_requests_per_s"] <= row["sustained_high_requests_per_s"]
    assert row["sustained_high_requests_per_s"] > 0.7 * share
    assert row["sustained_low_requests_per_s"] < 3 * share
    assert row["slo_missed_factor"] > 1
    curve = tables["plan_batch_curve"]
    tried = curve.filter(pl.col("burst_miss_ratio").is_not_null())
    assert tried.filter("is_today").height == 1
    assert tried["batch_requests"].max() == 2 * SLOW.max_num_seqs


def test_an_hour_that_cannot_be_thinned_further_ends_the_search_and_not_the_plan() -> None:
    """Prompts that miss whatever the rate stand just before the hardest hour; five sessions of it on many replicas."""
    lost = [attempt(17_905 + 0.5 * n, 100_000, 2000) for n in range(190)]
    late = [*lost, *(attempt(18_060 + 12.0 * n, 500, 3000) for n in range(290))]
    row = plan_deployment(workload(late), site(replica(ttft_p95_s=1.0)), ASSUMED, "0" * 12)["plan_replicas"].row(
        0, named=True
    )
    assert row["sustained_low_requests_per_s"] is row["sustained_high_requests_per_s"] is None
    assert row["slo_missed_factor"] > 1, "they are not of the hour, as in the count"
    few = [{**row, "session_id": f"s{n % 5}"} for n, row in enumerate(hours(3, [300]))]
    found = replayed_demands(workload(few), site(SLOW)).latency.replay
    assert found is not None
    shared = [sustained(found, 4, seed) for seed in range(20)]
    assert {} in shared


def test_seats_for_more_than_the_pool_holds_end_in_preemptions_under_a_burst() -> None:
    one = replica(24_000, step=SLOW.step, ttft_p95_s=30.0, tpot_p95_s=0.2)
    rows = [attempt(3.6 * n, 800, 1500) for n in range(1000)]
    found = replayed_demands(workload(rows), site(one)).latency
    assert found.replay is not None
    assert found.replicas is not None
    curve = batch_curve(one, 1550.0, 800.0)
    tried = oversubscribed(curve, found.replay, found.replicas, 1)
    recommended = curve.filter("is_recommended")["batch_requests"].item()
    assert recommended <= 24_000 // 1550
    assert tried[recommended]["burst_preempted_requests"] < tried[512]["burst_preempted_requests"]


def test_a_stretch_is_a_trace_with_a_clock_of_its_own() -> None:
    rows = [attempt(100.0 * n, 100, 10, session_id="s", turn=n, e2e=1.0) for n in range(10)]
    _made, week = week_of([*rows, attempt(950.0, 100, 10)], replica())
    part, taken = sliced(week.trace, 250.0, 650.0)
    assert taken.tolist() == [3, 4, 5, 6]
    assert part.columns.arrived_s.tolist() == [0.0, 100.0, 200.0, 300.0]
    assert part.columns.parent.tolist() == [-1, 0, 1, 2]
    assert part.columns.session.tolist() == [0, 0, 0, 0]
