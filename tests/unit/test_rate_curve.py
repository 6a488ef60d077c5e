"""The curve of the sustainable rate: it meets the search for the latency demand at the window as it was."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from planner_week import STEP, attempt, replica, site, workload

from transforms.planner.replay.sustainable_rate import ATTAINED_RATIO
from transforms.planner.sizing.plan_deployment import plan_deployment, replayed_demands
from transforms.planner.sizing.rate_curve import FACTORS, rate_curve
from transforms.planner.sizing.replica_capacity import first_missed_factor
from transforms.planner.steps.hardware import ASSUMED

SLOW = replica(step=dataclasses.replace(STEP, flop_per_s=STEP.flop_per_s / 10), ttft_p95_s=2.0, tpot_p95_s=0.2)
PER_HOUR = (300, 4000)


def rows() -> list[dict[str, object]]:
    """A quiet hour, then a busy one, Poisson; the busy one asks for most."""
    random = np.random.default_rng(3)
    return [
        attempt(3600.0 * hour + float(at), int(random.lognormal(7.5, 0.8)) + 1, int(random.lognormal(5.0, 0.7)) + 1)
        for hour, count in enumerate(PER_HOUR)
        for at in np.sort(random.uniform(0, 3600, count))
    ]


def test_a_fleet_keeps_what_the_search_says_and_less_of_more() -> None:
    found = replayed_demands(workload(rows()), site(SLOW)).latency
    assert found.replay is not None
    assert found.replicas is not None
    fewer, enough = found.replicas - 1, found.replicas
    points = rate_curve(found.replay, fewer, enough, seed=1)
    assert [(point["fleet_replicas"], point["rate_factor"]) for point in points] == [
        (replicas, factor) for replicas in (fewer, enough) for factor in FACTORS
    ]
    as_it_was = {point["fleet_replicas"]: point for point in points if point["rate_factor"] == 1}
    assert as_it_was[enough]["attainment_ratio"] == found.replay.attained_ratio >= ATTAINED_RATIO
    assert as_it_was[fewer]["attainment_ratio"] == found.replay.below_ratio
    assert as_it_was[enough]["rate_requests_per_s"] == PER_HOUR[1] / 3600
    half, *_, most = (point for point in points if point["is_needed"])
    assert half["rate_requests_per_s"] == pytest.approx(PER_HOUR[1] / 7200, rel=0.1)
    assert half["attainment_ratio"] > most["attainment_ratio"]
    first = first_missed_factor(found.replay, enough, seed=1)
    assert first is not None
    kept = {point["rate_factor"]: point["attainment_ratio"] for point in points if point["is_needed"]}
    assert {factor: ratio >= ATTAINED_RATIO for factor, ratio in kept.items()} == {
        factor: factor < first for factor in kept
    }


def test_what_is_not_replayed_has_no_curve() -> None:
    few = plan_deployment(workload(rows()[:100]), site(SLOW), ASSUMED, "0" * 12)
    assert few["plan_rate_curve"].is_empty()
