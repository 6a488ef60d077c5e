"""Step time: floors no prediction may break, the roofline's two sides, arrays as scalars, and the closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_week import STEP, replica

from transforms.planner.residency import pace
from transforms.planner.residency.pace import decode_work_s, planned_batch, prefill_times_s, prefill_work_s, slo_pace
from transforms.planner.steps.step_time import (
    Batch,
    StepModel,
    largest_batch,
    of_rank,
    pool_step_s,
    prefill_s,
    step_floor_s,
    step_s,
    ttft_floor_s,
)

ratios = st.floats(0.05, 1.0)
models = st.builds(
    lambda compute, bandwidth, overhead, drafts: dataclasses.replace(
        STEP,
        flop_per_s=compute * STEP.peak_flop_per_s,
        bytes_per_s=bandwidth * STEP.peak_bytes_per_s,
        step_overhead_s=overhead,
        speculative_tokens=drafts,
    ),
    ratios,
    ratios,
    st.floats(0, 0.01),
    st.integers(0, 5),
)
lengths = st.integers(1, 200_000)


@given(model=models, prompt=lengths, cached=st.floats(0, 1), batch=st.integers(0, 256), chunk=st.integers(16, 16_384))
def test_no_first_token_before_its_own_work(
    model: StepModel, prompt: int, cached: float, batch: int, chunk: int
) -> None:
    held = int(cached * (prompt - 1))
    assert prefill_s(model, prompt, held, Batch(chunk, batch, 1000)) >= ttft_floor_s(model, prompt, held)


@given(model=models, prefill=st.integers(0, 8192), batch=st.integers(1, 512), context=lengths)
def test_no_step_before_its_weights_are_read(model: StepModel, prefill: int, batch: int, context: int) -> None:
    seconds = step_s(model, prefill, batch, context, context / 2)
    assert seconds >= step_floor_s(model)


@pytest.mark.parametrize("experts", [0.0, 8.0])
def test_a_step_of_a_rank_takes_as_long_as_that_of_all_ranks_with_as_much_work_each(experts: float) -> None:
    timed = {"sampled_s": 3e-6, "pair_s": 2e-13, "context_s": 4e-8, "sequence_s": 1e-6, "token_collective_s": 1e-6}
    several = {"experts": 128.0, "experts_per_token": experts, "expert_bytes": 3e10, "expert_s": 0.02 * (experts > 0)}
    for model in (STEP, dataclasses.replace(STEP, **timed, **several)):
        own = of_rank(model, 3)
        for each in (1, 30, 250):
            together_s = step_s(model, 0, 3 * each, 700)
            assert step_s(own, 0, each, 700) == pytest.approx(together_s, rel=1e-12)
            together_s = step_s(model, 3 * 9000, 3 * each, 700)  # prompts of which compute binds
            assert step_s(own, 9000, each, 700) == pytest.approx(together_s, rel=1e-12)
            assert step_s(own, 0, each, 700) >= step_floor_s(own)
    assert of_rank(STEP, 1) is STEP


@given(model=models, batch=st.integers(1, 511), context=st.integers(1, 100_000))
def test_more_work_never_takes_less_time(model: StepModel, batch: int, context: int) -> None:
    seconds = step_s(model, 0, batch, context)
    assert step_s(model, 0, batch + 1, context) >= seconds
    assert step_s(model, 0, batch, context + 1) >= seconds
    assert step_s(model, 1, batch, context) >= seconds
    faster = dataclasses.replace(model, bytes_per_s=2 * model.bytes_per_s, flop_per_s=2 * model.flop_per_s)
    assert step_s(faster, 0, batch, context) <= seconds


def test_either_side_of_the_roofline_binds() -> None:
    alone = step_s(STEP, 0, 1, 1000)
    read = (STEP.weight_bytes + 1000 * STEP.kv_token_bytes) / STEP.bytes_per_s
    assert alone == pytest.approx(read + STEP.step_overhead_s + STEP.sequence_overhead_s)
    chunk = step_s(STEP, 8192, 0, 0, 4096)
    work = (8192 * STEP.token_flop + 8192 * 4096 * STEP.pair_flop) / STEP.flop_per_s
    assert chunk == pytest.approx(work + STEP.step_overhead_s)


def test_larger_batches_trade_throughput_for_waiting() -> None:
    """8 sequences at 20 ms are 400 tokens/s, 16 at 30 ms are 533: more for all, slower for each."""
    assert 8 / 0.020 == 400
    assert round(16 / 0.030) == 533
    small, large = step_s(STEP, 0, 8, 8000), step_s(STEP, 0, 64, 8000)
    assert 64 / large > 8 / small
    assert large > small


def test_prefill_is_the_sum_of_its_steps_while_compute_binds() -> None:
    batch = Batch(2048, 0, 0)
    steps = [step_s(STEP, 2048, 0, 0, start + 1024) for start in range(0, 8192, 2048)]
    whole = prefill_s(STEP, 8192, 0, batch)
    assert whole == pytest.approx(sum(steps) + STEP.sampled_flop / STEP.flop_per_s, rel=1e-12)
    assert prefill_s(STEP, 8193, 0, batch) > whole + STEP.step_overhead_s


def test_cached_prefix_is_not_computed_again() -> None:
    batch = Batch(2048, 0, 0)
    assert prefill_s(STEP, 8192, 4096, batch) < 0.6 * prefill_s(STEP, 8192, 0, batch)


@given(
    rows=st.lists(st.tuples(st.integers(1, 100_000), st.floats(0, 1), st.integers(1, 5000)), min_size=1, max_size=20)
)
def test_arrays_are_the_scalars_side_by_side(rows: list[tuple[int, float, int]]) -> None:
    one = replica()
    pace = slo_pace(one)
    prompt = np.array([float(row[0]) for row in rows])
    cached = np.floor(np.array([row[1] for row in rows]) * (prompt - 1))
    expected = [prefill_s(STEP, p, c, pace.beside) for p, c in zip(prompt, cached, strict=True)]
    assert prefill_times_s(one, pace, prompt, cached) == pytest.approx(expected, rel=1e-12)


def test_largest_batch_stops_at_kv_engine_or_promise() -> None:
    def most(**limits: float) -> int:
        wanted = {"capacity_tokens": 1e9, "max_requests": 10_000, "tpot_s": 10.0} | limits
        return largest_batch(STEP, 1000, **wanted)  # type: ignore[arg-type]

    assert most(capacity_tokens=7999.0) == 7
    assert most(max_requests=12) == 12
    by_promise = most(tpot_s=0.03)
    assert step_s(STEP, 0, by_promise, 1000) <= 0.03 < step_s(STEP, 0, by_promise + 1, 1000)
    assert most(tpot_s=1e-6) == 1


def test_slo_pace_reads_a_full_pool_and_keeps_the_promise() -> None:
    one = replica()
    pace = slo_pace(one)
    assert pace.is_tpot_met
    assert pace.token_s == pool_step_s(STEP, pace.beside.decode_requests, one.kv_capacity_tokens)
    hurried = slo_pace(dataclasses.replace(one, tpot_p95_s=0.01))
    assert hurried.token_s == 0.01
    assert not hurried.is_tpot_met


def test_planned_batch_fits_the_observed_lengths() -> None:
    one = replica()
    found = planned_batch(one, [(np.full(10, 20_000.0), np.full(10, 2000.0))])
    assert found is not None
    assert found.context_tokens == 21_000
    assert found.batch_requests == 448_000 // 21_000
    assert planned_batch(one, [(np.full(3, 100.0), np.ones(3))]) is None


@given(prompt=st.integers(1, 100_000), output=st.integers(1, 4000), more=st.integers(1, 1000))
def test_longer_requests_are_more_work(prompt: int, output: int, more: int) -> None:
    one = replica()
    pace = slo_pace(one)

    def work(p: float, o: float) -> float:
        prompts, outputs = np.array([p]), np.array([o])
        return float((prefill_work_s(one, pace, prompts, 0 * prompts) + decode_work_s(one, prompts, outputs))[0])

    assert work(prompt + more, output) > work(prompt, output)
    assert work(prompt, output + more) > work(prompt, output)


def test_a_batch_of_experts_reads_what_its_own_tokens_ask_for() -> None:
    """The batch priced for decode takes the promised time where the promise binds, experts included."""
    sparse = dataclasses.replace(
        STEP, weight_bytes=3e9, experts=128, experts_per_token=4, expert_bytes=60e9, expert_s=0.03
    )
    one = replica(10_000_000, step=sparse, max_num_seqs=4096)
    context = np.array([100.0, 2000.0, 30_000.0])
    batch = pace._batches(one, context)
    took = [step_s(sparse, 0.0, float(b), float(c)) for b, c in zip(batch, context, strict=True)]
    assert took == pytest.approx([one.tpot_p95_s] * 3, rel=1e-3)
    hurried = dataclasses.replace(one, tpot_p95_s=0.01)
    (few,) = pace._batches(hurried, np.array([2000.0]))
    assert 1 < few < 16
    assert step_s(sparse, 0.0, float(few), 2000.0) == pytest.approx(0.01, rel=1e-3)
    assert step_s(sparse, 0.0, 1.0, 1.0) >= step_floor_s(sparse)
