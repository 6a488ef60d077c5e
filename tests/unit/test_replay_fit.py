"""The fit finds a planted step-time model again, and the search finds known minima."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from flows.catalog import load_catalog
from transforms.fleet import Engine
from transforms.planner.memory.kv_on_gpu import kv_on_gpu
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_costs import ReplayParameters, replay_costs
from transforms.planner.replay.replay_fit import Run, fitted, fitted_names
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.replay_settings import kv_pool, replay_settings
from transforms.planner.replay.replay_trace import Logged, ReplayTrace
from transforms.planner.replay.replay_types import NO_LIMIT, Caching, Pool, TraceColumns
from transforms.planner.steps.hardware import engine_work
from transforms.planner.steps.parameter_space import bound_to, carried_over, free_of, merged_overheads
from transforms.planner.steps.step_calibration import StepParameters

ENGINE = Engine(version="0.19.0", max_num_seqs=64, max_num_batched_tokens=2048)
START = ReplayParameters(StepParameters(), 0.3)


def rising_load(count: int = 240) -> ReplayTrace:
    """Poisson arrivals, four times as many at the end as at the start; no times yet."""
    random = np.random.default_rng(7)
    arrived_s = np.cumsum(random.exponential(1.0, count) / np.linspace(2, 8, count))
    columns = TraceColumns(
        arrived_s,
        random.integers(100, 3000, count).astype(np.int32),
        random.integers(50, 400, count).astype(np.int32),
        session=np.arange(count, dtype=np.int32),
    )
    nothing = np.full(count, np.nan)
    return ReplayTrace(
        columns,
        pl.Series([f"r{n}" for n in range(count)]),
        np.arange(count),
        drawn_outputs=0,
        unknown_gaps=0,
        left_out={},
        prefix_block_tokens=0,
        has_sessions=False,
        logged=Logged(nothing, nothing, nothing),
    )


@pytest.mark.parametrize("model_id", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"])
def test_a_planted_step_time_model_is_found_again(model_id: str) -> None:
    catalog = load_catalog(None)
    model, gpu = catalog.model(model_id), catalog.gpu("H100-SXM-80GB")
    found = kv_on_gpu(model.config, model.where, gpu, ENGINE)
    work = engine_work(model.config, model.where, gpu, found.engine)
    trace, names = rising_load(), fitted_names(work)
    settings = replay_settings(found.engine, ReplayOptions(), kv_pool(found.account).pool, None, trace)
    start = merged_overheads(START, work)
    off = np.random.default_rng(3).normal(0, 0.3, len(names))
    planted = bound_to(free_of(start, names) + off, names, start)
    truth = replay(trace.columns, settings, replay_costs(work, planted))
    run = Run(replace(trace, logged=Logged(truth.queue_s, truth.ttft_s, truth.e2e_s)), settings)
    fit = fitted([run], work, START)
    again = replay(trace.columns, settings, replay_costs(work, fit.parameters))
    assert fit.fit_requests == fit.holdout_requests == 120
    assert ("expert_bandwidth_ratio" in fit.fitted) == (model_id != "meta-llama/Llama-3.1-8B")
    assert again.e2e_s.mean() == pytest.approx(truth.e2e_s.mean(), rel=0.01)
    for measure, most in (("tpot_s", 0.02), ("e2e_s", 0.02), ("ttft_s", 0.10)):
        error = fit.holdout_error_ratio[measure]
        assert error is not None
        assert error < most, measure


def test_what_a_fit_changed_is_changed_in_another_gpus_values() -> None:
    names = ("weight_bandwidth_ratio", "step_overhead_s")
    fit = ReplayParameters(replace(StepParameters(), weight_bandwidth_ratio=0.9, step_overhead_s=4e-3), 0.2)
    other = ReplayParameters(replace(StepParameters(), weight_bandwidth_ratio=0.6, step_overhead_s=1e-3), 0.3)
    same = carried_over(fit, START, START, (*names, "mixed_context_factor"))
    assert same.step.weight_bandwidth_ratio == pytest.approx(0.9)
    assert same.mixed_context_factor == pytest.approx(0.2)
    moved = carried_over(fit, START, other, (*names, "mixed_context_factor")).step
    assert 0.6 < moved.weight_bandwidth_ratio < 0.9
    assert moved.step_overhead_s / 1e-3 == pytest.approx(4e-3 / StepParameters().step_overhead_s)
    assert moved.kv_bandwidth_ratio == other.step.kv_bandwidth_ratio


def test_the_pool_leaves_the_engine_its_block_and_counts_windows_in_bytes() -> None:
    catalog = load_catalog(None)
    gpu = catalog.gpu("H100-SXM-80GB")
    llama = catalog.model("meta-llama/Llama-3.1-8B")
    plain = kv_pool(kv_on_gpu(llama.config, llama.where, gpu, ENGINE).account, 2588)
    assert plain.pool == Pool(2587, (16,), (NO_LIMIT,), (1,), 0)
    assert (plain.token_bytes, plain.unit_bytes, plain.blocks) == (131_072, 2_097_152, 2588)
    gemma = catalog.model("google/gemma-3-12b-it")
    account = kv_on_gpu(gemma.config, gemma.where, gpu, ENGINE).account
    mixed = kv_pool(account)
    assert mixed.token_bytes is None
    assert min(mixed.pool.max_blocks) < NO_LIMIT
    assert mixed.pool.units * mixed.unit_bytes == (account.num_blocks - 1) * account.bytes_per_block


def test_prefix_caching_goes_by_what_the_trace_and_the_engine_have() -> None:
    trace, pool = rising_load(4), Pool(100)

    def caching(engine: Engine, options: ReplayOptions = ReplayOptions(), **changed: object) -> Caching:  # noqa: B008
        return replay_settings(engine, options, pool, None, replace(trace, **changed)).caching  # type: ignore[arg-type]

    assert caching(ENGINE) == Caching.SESSION
    assert caching(ENGINE, prefix_block_tokens=512) == Caching.BLOCK_IDS
    assert caching(ENGINE, prefix_block_tokens=24) == Caching.SESSION
    assert caching(ENGINE, ReplayOptions(replicas=4_000_000)) == Caching.OFF
    assert caching(ENGINE, ReplayOptions(replicas=4_000_000), has_sessions=True) == Caching.SESSION
    assert caching(replace(ENGINE, enable_prefix_caching=False)) == Caching.OFF
    assert caching(ENGINE, ReplayOptions(prefix_caching_by="off")) == Caching.OFF


def test_async_scheduling_of_the_fleet_file_comes_before_the_releases_own() -> None:
    trace, pool, options = rising_load(4), Pool(100), ReplayOptions()
    assert replay_settings(ENGINE, options, pool, None, trace).async_lag_steps == 1
    assert replay_settings(replace(ENGINE, async_scheduling=False), options, pool, None, trace).async_lag_steps == 0
    old = replay_settings(replace(ENGINE, version="0.11.2"), options, pool, 4096, trace)
    assert (old.async_lag_steps, old.reserve_full_prompt, old.max_model_len) == (0, False, 4096)
