"""Residency: the sweep's 1 s means against adding up every microsecond-exact stretch by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import MONDAY, attempt, random_rows, replica, workload

from transforms.planner.residency.instant_peak import instant_max_bytes
from transforms.planner.residency.occupancy import (
    decode_stretches,
    hour_peaks,
    prefill_stretches,
    request_residency,
    residency_windows,
    total_block_bytes,
)
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.sweep import Sweep
from transforms.planner.residency.timeline import Timeline, observed_timeline, slo_timeline
from transforms.workload import Workload

REPLICA = replica()
PACE = slo_pace(REPLICA)


def observed(work: Workload) -> Timeline:
    return observed_timeline(work, REPLICA, PACE, np.full(work.rows, PACE.token_s))


def by_hand(start_s: float, end_s: float, low: float, high: float, window_s: int) -> np.ndarray:
    """Mean of each second of one stretch: the average of the clipped ends' values times the time inside."""
    means = np.zeros(window_s)
    slope = (high - low) / (end_s - start_s) if end_s > start_s else 0.0
    for second in range(window_s):
        begin, finish = max(start_s, second), min(end_s, second + 1)
        if finish > begin:
            value = low + slope * ((begin + finish) / 2 - start_s)
            means[second] = value * (finish - begin)
    return means


stretches = st.lists(
    st.tuples(st.integers(-3_000_000, 12_000_000), st.integers(0, 5_000_000), st.floats(0, 1e5), st.floats(0, 1e5)),
    min_size=1,
    max_size=30,
)


@given(rows=stretches)
def test_means_are_exact(rows: list[tuple[int, int, float, float]]) -> None:
    start, length = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    low, high = np.array([r[2] for r in rows]), np.array([r[3] for r in rows])
    sweep = Sweep(10, curves=2)
    sweep.add(start, start + length, (low, high), (low, None))
    ramp = sum(by_hand(s / 1e6, (s + n) / 1e6, a, b, 10) for s, n, a, b in rows)
    level = sum(by_hand(s / 1e6, (s + n) / 1e6, a, a, 10) for s, n, a, _ in rows)
    scale = 1e-9 * (1 + max(np.max(ramp), np.max(level)))
    assert sweep.means()[0] == pytest.approx(ramp, abs=scale)
    assert sweep.means()[1] == pytest.approx(level, abs=scale)


def test_chunks_add_up_to_the_same_bytes() -> None:
    random = np.random.default_rng(0)
    start = np.sort(random.integers(0, 50_000_000, 300_000))
    end, value = start + random.integers(0, 9_000_000, 300_000), random.random(300_000)
    runs = []
    for _ in range(2):
        sweep = Sweep(60, curves=1)
        sweep.add(start, end, (value, None))
        runs.append(sweep.means().tobytes())
    assert runs[0] == runs[1]


def test_phases_of_one_request() -> None:
    timeline = observed(workload([attempt(1.0, 1600, 101, queue=1.0, ttft=3.0, e2e=13.0, cached_prompt_tokens=800)]))
    residency = request_residency(timeline, REPLICA, 20)
    tokens = {phase: held.linear_bytes / REPLICA.kv_token_bytes for phase, held in residency.items()}
    assert tokens["prefill"][:6] == pytest.approx([0, 0, 1000, 1400, 0, 0])
    assert tokens["decode"][3:16] == pytest.approx([0, *(1600 + 10.1 * (n + 0.5) for n in range(10)), 0, 0])
    blocks = residency["decode"].block_bytes / (16 * REPLICA.kv_token_bytes)
    assert blocks[4:14].mean() == pytest.approx(np.mean([-(-(1600 + n) // 16) for n in range(100)]))
    assert blocks[0] == 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_block_rounding_wastes_less_than_a_block_a_request(seed: int) -> None:
    residency = request_residency(observed(workload(random_rows(seed, 60, 300.0))), REPLICA, 400)
    block = 16 * REPLICA.kv_token_bytes
    for held in residency.values():
        waste = held.block_bytes - held.linear_bytes
        # Token-linear counts the newest token, whose KV the next step writes: a block may lag by that one token.
        lag = held.requests * REPLICA.kv_token_bytes
        assert -lag.sum() - 1 <= waste.sum() <= held.requests.sum() * block + 1
        # A phase's mean is exact; inside it blocks run steadily, so an instant may be off by half a block more.
        assert (np.abs(waste) <= 1.5 * held.requests * block + lag + 1).all()
        assert (held.requests >= 0).all()


def test_nobody_means_exactly_zero() -> None:
    rows = [attempt(60.0 * n + 0.3, 997 + n, 301, ttft=0.7, e2e=7.77) for n in range(50)]
    residency = request_residency(observed(workload(rows)), REPLICA, 3600)
    idle = residency["decode"].requests == 0
    assert idle.sum() > 2000
    assert (residency["decode"].linear_bytes[idle] == 0).all()


def test_requests_that_run_over_the_edges_are_cut_there() -> None:
    rows = [attempt(-2.0, 100, 1, ttft=0.0, e2e=5.0), attempt(8.0, 100, 1, ttft=0.0, e2e=50.0)]
    residency = request_residency(observed(workload(rows)), REPLICA, 10)
    assert residency["decode"].requests.tolist() == pytest.approx([1, 1, 1, 0, 0, 0, 0, 0, 1, 1])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_instant_maximum_lies_above_every_mean_and_below_the_sum(seed: int) -> None:
    timeline = slo_timeline(workload(random_rows(seed, 80, 100.0)), REPLICA, PACE)
    means = total_block_bytes(request_residency(timeline, REPLICA, 400))
    most = instant_max_bytes(timeline, REPLICA, 0, 400_000_000)
    assert most >= means.max() * (1 - 1e-9)
    ends = [part.from_block_bytes.sum() + part.to_block_bytes.sum() for part in (
        prefill_stretches(timeline, REPLICA), decode_stretches(timeline, REPLICA))]  # fmt: skip
    assert most <= sum(ends)


def test_at_equal_instants_ends_come_before_starts() -> None:
    rows = [attempt(float(n), 1000, 1, ttft=0.0, e2e=1.0) for n in range(3)]
    timeline = observed(workload(rows))
    one = 63 * 16 * REPLICA.kv_token_bytes
    assert instant_max_bytes(timeline, REPLICA, 0, 10_000_000) == pytest.approx(one)
    assert instant_max_bytes(timeline, REPLICA, 20_000_000, 30_000_000) == 0


def test_windows_of_five_minutes() -> None:
    rows = [attempt(299.0, 1000, 1, ttft=0.0, e2e=2.0)]
    held = request_residency(observed(workload(rows)), REPLICA, 600)["decode"]
    windows = residency_windows(held, MONDAY)
    assert windows["window_started_at"].to_list()[1].isoformat() == "2026-11-16T00:05:00+00:00"
    assert windows["residency_max_bytes"].to_list() == pytest.approx([held.linear_bytes[299], held.linear_bytes[300]])
    assert windows["residency_mean_bytes"].to_list()[0] == pytest.approx(held.linear_bytes[299] / 300)
    assert windows.select(pl.col("resident_mean_requests").sum() * 300).item() == pytest.approx(2.0)


def test_peak_of_an_hour_is_a_quantile_of_its_seconds() -> None:
    series = np.zeros(7200)
    series[:30] = 5.0
    series[3600:3650] = 4.0
    assert hour_peaks(series).tolist() == [0.0, 4.0]
