"""Counts: whole replicas, spares, whole nodes, what binds, the envelope, and the batch curve."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_week import attempt, replica, workload

from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.timeline import slo_timeline
from transforms.planner.sizing.envelope import difference, envelope
from transforms.planner.sizing.gpus import Terms, binding, fleet_for, gpus_of, is_one_lost_ok, whole_replicas
from transforms.planner.steps.batch_curve import batch_curve

TERMS = Terms(gpus_per_replica=2, gpus_per_node=8, is_whole_node=False, spare_replicas=1)


def test_rounding_of_sums_is_no_replica() -> None:
    assert whole_replicas(3.0 + 1e-12) == 3
    assert whole_replicas(3.001) == 4
    assert whole_replicas(0.0) == 0


def test_the_largest_demand_counts_and_the_spare_comes_on_top() -> None:
    assert fleet_for([2.1, 0.4, 1.0], TERMS).replicas == 4
    assert fleet_for([2.1, 0.4, 1.0], TERMS).gpus == 8


def test_the_service_answers_with_one_replica_at_least() -> None:
    assert fleet_for([0.0, 0.0, 0.0], TERMS).replicas == 2
    assert fleet_for([], dataclasses.replace(TERMS, spare_replicas=0)).gpus == 2


@given(replicas=st.integers(1, 100))
def test_whole_nodes_only_where_the_gpu_is_had_so(replicas: int) -> None:
    whole = dataclasses.replace(TERMS, is_whole_node=True)
    assert gpus_of(replicas, TERMS) == 2 * replicas
    assert gpus_of(replicas, whole) % 8 == 0
    assert 0 <= gpus_of(replicas, whole) - 2 * replicas < 8


def test_what_binds() -> None:
    assert binding({"kv": 2.5, "compute": 1.0, "latency": 1.0}) == "kv"
    assert binding({"kv": 0.5, "compute": 1.5, "latency": 1.0}) == "compute"
    assert binding({"kv": 0.5, "compute": 1.5, "latency": 4.0}) == "latency"
    assert binding({"kv": 0.5, "compute": 0.8, "latency": 1.0}) == "compute"
    assert binding({"kv": 1.5, "compute": 0.8, "latency": None}) == "kv"


def test_one_replica_lost() -> None:
    assert is_one_lost_ok([1.9, 0.5], now_replicas=3)
    assert not is_one_lost_ok([2.1, 0.5], now_replicas=3)
    assert not is_one_lost_ok([0.1], now_replicas=1)


def test_envelope_is_peak_rate_times_response_time() -> None:
    one = replica(max_num_seqs=4)
    rows = [attempt(0.5 * n, 1000, 1 + round(10 / slo_pace(one).token_s)) for n in range(120)]
    timeline = slo_timeline(workload(rows), one, slo_pace(one))
    made = envelope(timeline, one, 0.3)
    assert made is not None
    assert made.peak_requests_per_s == 2.0
    assert made.response_s == pytest.approx(10, rel=0.02)
    assert made.resident_per_replica == 4
    assert made.instances == 7
    assert made.token_rate_per_s == pytest.approx(2 * (1000 + rows[0]["output_tokens"]))
    assert made.anchor_tokens_per_s == pytest.approx(0.7 * 989e12 / 14e9)
    assert envelope(slo_timeline(workload([]), one, slo_pace(one)), one, 0.3) is None


def test_the_envelope_says_why_the_plan_differs() -> None:
    one = replica()
    made = envelope(slo_timeline(workload([attempt(0)]), one, slo_pace(one)), one, 0.3)
    assert made is not None
    assert "; the plan comes to the same; by compute alone" in difference(made, 1, "kv", 1)
    text = difference(made, 5, "latency", 4)
    assert "does not know the objectives, which bind here (4 replicas)" in text
    assert "no spare replica (1 here)" in text


def test_batch_curve_marks_today_the_turning_point_and_what_fits() -> None:
    one = replica(max_num_seqs=256)
    curve = batch_curve(one, 4000.0, 3000.0)
    assert curve["batch_requests"].to_list() == sorted(set(curve["batch_requests"]))
    assert curve["batch_requests"].min() == 1
    assert curve["batch_requests"].max() == 512
    assert curve["throughput_tokens_per_s"].is_sorted()
    assert curve["tpot_s"].is_sorted()
    assert curve.filter("is_today")["batch_requests"].to_list() == [256]
    fits = curve.filter("is_kv_ok")["batch_requests"].max()
    assert fits == 448_000 // 4000
    assert curve.filter("is_recommended")["batch_requests"].to_list() == [fits]
    assert curve.filter(pl.col("batch_requests") == 16)["rule_of_thumb_factor"].item() == pytest.approx(1.882, abs=5e-4)


def test_turning_point_is_where_one_more_costs_each_as_much_as_it_gives_all() -> None:
    """With a step of a + b·B the last worthwhile sequence is near B = a/b."""
    one = replica(max_num_seqs=512)
    context = 4000.0
    slope = one.kv_token_bytes * context / one.step.bytes_per_s + one.step.sequence_overhead_s
    turning = batch_curve(one, context, 1000.0).filter("is_turning_point")["batch_requests"].item()
    assert turning == pytest.approx(one.step.base_s / slope, abs=1.5)


def test_a_promise_no_batch_keeps_recommends_none() -> None:
    curve = batch_curve(replica(tpot_p95_s=0.001), 4000.0, 3000.0)
    assert not curve["is_recommended"].any()
