"""The replay against what must hold whatever the engine: queueing theory, conservation, monotone demand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from queueing import check_all, replayed

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import Caching, Pool, Router, Settings, Status, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.replay.verdict import OVERLOADED, STABLE, verdict_of

STEP = StepCosts(2e-5, 2e-6, 1e-9, 8e-3, 5e-8, step_s=1e-3, sequence_s=1e-5)
ENGINE = Settings(Pool(1500), max_num_seqs=48, max_num_batched_tokens=1024)


def busy_trace(seed: int, rows: int, rate: float) -> TraceColumns:
    """Poisson arrivals, lognormal lengths."""
    rng = np.random.default_rng(seed)
    return TraceColumns(
        np.cumsum(rng.exponential(1 / rate, rows)),
        np.clip(rng.lognormal(5.5, 1.0, rows), 1, 6000).astype(np.int32),
        np.clip(rng.lognormal(4.5, 1.0, rows), 1, 3000).astype(np.int32),
    )


def test_queues_as_theory_has_them() -> None:
    check_all(8, 10_000, 0.6)


@pytest.mark.soak
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_queues_as_theory_has_them_closely(load: float) -> None:
    assert check_all(30, 200_000, load) <= 0.03


@pytest.mark.parametrize("lag", [0, 1])
def test_memory_is_conserved_under_heavy_preemption(lag: int) -> None:
    trace = busy_trace(3, 4000, 26.0)
    engine = replace(
        ENGINE,
        pool=Pool(600),
        reserve_full_prompt=False,
        async_lag_steps=lag,
        timeout_s=60.0,
        replicas=2,
        series=True,
    )
    result = replay(trace, engine, STEP)
    assert result.preempted > 1000
    assert result.series is not None
    used = result.series.mean_used_units
    assert used.min() >= 0
    assert used.max() <= 2 * engine.pool.units
    assert result.series.used_units.max() <= 2 * engine.pool.units
    np.testing.assert_allclose(used.sum(), result.kv_unit_s.sum(), rtol=1e-9)
    counts = np.bincount(result.status, minlength=9)
    assert counts[Status.COMPLETED] > 0
    assert counts[Status.TIMED_OUT] > 0
    assert counts[Status.IN_FLIGHT] == 0
    assert (result.output_tokens[result.status == Status.COMPLETED] >= 1).all()
    waste = result.kv_unit_s * 16 - result.kv_token_s
    assert waste.min() >= -1e-6


def test_a_cache_hit_is_work_that_is_not_done_again() -> None:
    rows = 400
    trace = TraceColumns(
        np.arange(rows) * 0.05,
        np.full(rows, 1024, dtype=np.int32),
        np.full(rows, 20, dtype=np.int32),
        block_offsets=np.arange(rows + 1) * 64,
        block_ids=np.tile(np.arange(64), rows).astype(np.int32),
    )
    engine = replace(ENGINE, prefix_block_tokens=16)
    cold, warm = replay(trace, engine, STEP), replay(trace, replace(engine, caching=Caching.BLOCK_IDS), STEP)
    assert cold.cached_tokens.sum() == 0
    assert warm.cached_tokens.tolist() == [0] + [1008] * (rows - 1)
    assert warm.ttft_s[1:].mean() < cold.ttft_s[1:].mean()


def attainment(trace: TraceColumns, engine: Settings, ttft_s: float, tpot_s: float) -> float:
    """Share of requests within both limits, all others misses."""
    result = replay(trace, engine, STEP)
    tokens = np.maximum(result.output_tokens - 1, 1)
    tpot = (result.e2e_s - result.ttft_s) / tokens
    return float(((result.status == Status.COMPLETED) & (result.ttft_s <= ttft_s) & (tpot <= tpot_s)).mean())


def monotone_losses(seed: int) -> tuple[float, float, float]:
    """Points of attainment lost by more blocks (TPOT unlimited), by one more replica, by a tenth fewer requests."""
    rng = np.random.default_rng(seed)
    trace = busy_trace(seed, 1500, float(rng.uniform(4, 25)))
    replicas = int(rng.integers(1, 4))
    engine = replace(
        ENGINE,
        pool=Pool(int(rng.integers(600, 4000))),
        max_num_seqs=int(rng.integers(8, 96)),
        replicas=replicas,
        router=Router.LEAST_OUTSTANDING,
    )
    ttft, tpot = float(rng.uniform(0.5, 5)), float(rng.uniform(0.03, 0.08))
    more = replace(engine, pool=Pool(int(engine.pool.units * rng.uniform(1.05, 1.5))))
    kept = np.flatnonzero(rng.random(trace.rows) >= 0.1)
    thinned = TraceColumns(trace.arrived_s[kept], trace.prompt_tokens[kept], trace.output_tokens[kept])
    free, now = attainment(trace, engine, ttft, np.inf), attainment(trace, engine, ttft, tpot)
    return (
        100 * (free - attainment(trace, more, ttft, np.inf)),
        100 * (now - attainment(trace, replace(engine, replicas=replicas + 1), ttft, tpot)),
        100 * (now - attainment(thinned, engine, ttft, tpot)),
    )


def test_more_memory_more_replicas_and_less_load_do_not_hurt() -> None:
    losses = np.array([monotone_losses(seed) for seed in range(25)])
    assert (losses.max(axis=0) <= [0.2, 0.5, 0.5]).all(), losses.max(axis=0)


@pytest.mark.soak
def test_more_memory_more_replicas_and_less_load_do_not_hurt_in_500_cases() -> None:
    losses = np.array([monotone_losses(seed) for seed in range(500)])
    assert (losses.max(axis=0) <= [0.2, 0.5, 0.5]).all(), losses.max(axis=0)


@pytest.mark.parametrize(("load", "word"), [(0.7, STABLE), (0.9, STABLE), (1.1, OVERLOADED), (1.4, OVERLOADED)])
def test_the_verdict_on_poisson_arrivals_at_a_share_of_the_known_capacity(load: float, word: str) -> None:
    words = [verdict_of(replayed(seed, 4000, load, max_num_seqs=8)).word for seed in range(100)]
    assert words.count(word) >= 95
