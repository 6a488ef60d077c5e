"""Fleets that grow and shrink: what the autoscaler asks for, what it costs, and that it knows the past only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from transforms.planner.fleet_control.autoscaler import Autoscaler, Autoscaling, Seen
from transforms.planner.fleet_control.backlog import request_work_s
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.replay_settings import KvPool
from transforms.planner.replay.replay_types import Pool, Router, Settings, Status, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.whatif.replayed import fixed_fleet, fixed_fleet_figures, replay_figures

COSTS = StepCosts(2e-5, 0.0, 0.0, 0.08, 1e-8, step_s=0.002)
RULES = Autoscaling(max_replicas=6, start_up_s=300.0)
ENGINE = Settings(Pool(2_000), max_num_seqs=64, max_num_batched_tokens=2048, router=Router.LEAST_OUTSTANDING)


def told(uses: list[float], on: int, backlog_s: float = 0.0, rules: Autoscaling = RULES) -> list[int]:
    """Replicas wanted at each look, half a minute apart."""
    scaler, wanted = Autoscaler(rules), []
    for i, use in enumerate(uses):
        wanted.append(scaler.wanted(Seen(30.0 * i, use, backlog_s, on)))
    return wanted


def test_a_rising_use_is_met_before_it_is_there():
    rising = [0.30 + 0.005 * i for i in range(21)]  # 0.40 after ten minutes, 0.60 … 0.50 expected in ten more
    assert told(rising, on=1)[-1] == 1
    steeper = [0.30 + 0.015 * i for i in range(21)]  # 0.60 now, 0.90 expected
    assert told(steeper, on=1)[-1] == 2
    assert told([0.69] * 21, on=1)[-1] == 1
    assert told([0.71] * 21, on=1)[-1] == 2


def test_a_backlog_of_five_minutes_orders_one_more():
    assert told([0.4] * 3, on=1, backlog_s=299.0)[-1] == 1
    assert told([0.4] * 3, on=1, backlog_s=301.0)[-1] == 2
    assert told([0.4] * 3, on=6, backlog_s=301.0)[-1] == 6, "no more than there may be"


def test_half_an_hour_of_rest_dismisses_one():
    wanted = told([0.29 * 3] * 62, on=3)
    assert wanted[59] == 3
    assert wanted[60] == 2
    assert wanted[61] == 3, "and the clock starts anew"
    assert told([0.31 * 3] * 62, on=3)[-1] == 3
    assert told([0.0] * 62, on=1)[60] == 1


def traffic(seed: int = 0, minutes: int = 120) -> TraceColumns:
    """Two quiet hours but for a busy half hour from minute 30 on."""
    rng = np.random.default_rng(seed)
    arrived = np.sort(np.concatenate([rng.uniform(0, 60 * minutes, 40 * minutes), rng.uniform(1800, 3600, 30_000)]))
    whole = lambda high: rng.integers(1, high, len(arrived)).astype(np.int32)  # noqa: E731
    return TraceColumns(arrived, whole(600), whole(300))


def misses(result, slo_s: float = 2.0) -> int:
    return int(((result.status != Status.COMPLETED) | ~(result.ttft_s <= slo_s)).sum())


def test_a_burst_is_met_with_more_replicas_and_fewer_replica_hours_than_the_largest_fleet_takes():
    trace = traffic()
    one, six = replay(trace, ENGINE, COSTS), replay(trace, replace(ENGINE, replicas=6), COSTS)
    scaled = replay(trace, replace(ENGINE, autoscaling=RULES), COSTS)
    assert misses(six) == 0
    assert misses(one) > misses(scaled) > 0, "a replica that starts late is late for some"
    assert scaled.paid_replica_s < 0.8 * six.paid_replica_s
    assert scaled.paid_replica_s > one.paid_replica_s
    assert six.paid_replica_s == pytest.approx(6 * six.makespan_s)
    assert set(scaled.replica[scaled.arrived_s < 1800].tolist()) == {0}
    assert (scaled.status == Status.COMPLETED).all()


def test_an_autoscaler_is_held_against_todays_replicas_on_the_same_traffic():
    trace, options = traffic(), ReplayOptions(ttft_p95_s=2.0, tpot_p95_s=10.0)
    engine = replace(ENGINE, autoscaling=RULES)
    fixed = fixed_fleet(engine, now_replicas=6)
    assert fixed == replace(ENGINE, replicas=6)
    six, scaled = replay(trace, fixed, COSTS), replay(trace, engine, COSTS)
    found = fixed_fleet_figures(six, fixed, options, refused_requests=7, gpus=4)
    assert found == {
        "fixed_fleet_replicas": 6,
        "fixed_fleet_gpu_s": 4 * six.paid_replica_s,
        "fixed_fleet_missed_requests": misses(six) + 7,
    }
    pool = KvPool(ENGINE.pool, 1, ENGINE.pool.units, 1.0)
    figures = replay_figures(scaled, trace, pool, options, 7, 4)
    assert figures["missed_requests"] == misses(scaled) + 7 > found["fixed_fleet_missed_requests"]
    assert figures["paid_gpu_s"] == 4 * scaled.paid_replica_s < found["fixed_fleet_gpu_s"]
    assert fixed_fleet(ENGINE, 6) is None
    begun = fixed_fleet(engine, now_replicas=0)
    assert begun is not None
    assert begun.replicas == 1, "where nothing runs today: what the autoscaler begins with"


def test_replicas_that_nobody_may_order_change_nothing():
    trace = traffic(1, 40)
    fixed = replay(trace, replace(ENGINE, replicas=2), COSTS)
    rules = replace(RULES, max_replicas=2, min_replicas=2)
    scaled = replay(trace, replace(ENGINE, replicas=2, autoscaling=rules), COSTS)
    np.testing.assert_array_equal(fixed.replica, scaled.replica)
    np.testing.assert_allclose(scaled.e2e_s, fixed.e2e_s, rtol=1e-9)
    assert scaled.paid_replica_s == pytest.approx(fixed.paid_replica_s)


@pytest.mark.parametrize("router", list(Router)[:3])
def test_what_comes_later_changes_no_decision_before_it(router: Router):
    trace = traffic(2, 80)
    cut = 2400.0
    later = trace.arrived_s >= cut
    outputs = np.where(later, 1, trace.output_tokens).astype(np.int32)
    arrived = np.where(later, cut + (trace.arrived_s - cut) * 3, trace.arrived_s)
    engine = replace(ENGINE, router=router, autoscaling=RULES)
    first = replay(trace, engine, COSTS)
    other = replay(replace(trace, arrived_s=arrived, output_tokens=outputs), engine, COSTS)
    assert (first.replica[~later] == other.replica[~later]).all()
    assert len(set(first.replica[~later].tolist())) > 2
    assert not (first.replica[later] == other.replica[later]).all()


def test_work_of_a_request_is_its_prompt_in_full_steps_and_its_share_of_a_batch():
    # 2,048 tokens wait for the weights, 80 ms + 2,048·10 ns + 2 ms.
    # The batch of 64 with 64·(300 + 50) tokens takes 80 ms + 0.224 ms + 2 ms
    want = 300 * (0.08 + 2048 * 1e-8 + 0.002) / 2048 + 100 * (0.08 + 64 * 350 * 1e-8 + 0.002) / 64
    assert request_work_s(ENGINE, COSTS, 300, 100) == pytest.approx(want, rel=1e-9)
