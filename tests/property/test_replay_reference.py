"""The kernel against the plain step-by-step engine: the same schedule, and every time within 1e-9 of it."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replay_reference import REFUSED, Reference

from transforms.planner.replay import replay
from transforms.planner.replay_types import (
    NO_LIMIT,
    Pool,
    ReplayResult,
    Settings,
    TraceColumns,
)
from transforms.planner.step_costs import StepCosts

TICK = 2.0**-10
ROUGH = 0.7390851332151607  # makes every time inexact

CASES = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@st.composite
def costs(draw: st.DrawFn) -> StepCosts:
    """Step costs with either term binding, or both in turn; dyadic, so that ties are exact, or not."""
    scale = draw(st.sampled_from([TICK, TICK * ROUGH]))
    compute, memory, each = draw(st.sampled_from([(1, 0, 0), (0, 16, 1), (1, 16, 1), (2, 32, 0), (0, 40, 2)]))
    return StepCosts(
        token_compute_s=compute * 2 * scale,
        sampled_compute_s=compute * scale,
        pair_compute_s=compute * scale / 8,
        weight_memory_s=(memory + 1) * scale,
        context_memory_s=each * scale / 4,
        step_s=draw(st.integers(0, 3)) * scale,
        sequence_s=draw(st.integers(0, 2)) * scale / 2,
        token_s=draw(st.integers(0, 1)) * scale / 4,
        experts=draw(st.sampled_from([0.0, 8.0])),
        experts_per_token=2.0,
        expert_memory_s=scale,
    )


@st.composite
def pools(draw: st.DrawFn, largest: int) -> Pool:
    """Pools that hold one to three of the largest requests, most of the time."""
    blocks = draw(st.sampled_from([(4,), (3,), (1,), (4, 2), (2, 6)]))
    most = tuple(draw(st.sampled_from([NO_LIMIT, 3])) if at else NO_LIMIT for at in range(len(blocks)))
    each = tuple(draw(st.integers(1, 3)) if len(blocks) > 1 else 1 for _ in blocks)
    fixed = draw(st.sampled_from([0, 0, 2]))
    one = fixed + sum(math.ceil(largest / b) * e for b, e in zip(blocks, each, strict=True))
    return Pool(draw(st.integers(max(1, one - 2), 3 * one)), blocks, most, each, fixed)


@st.composite
def workloads(draw: st.DrawFn) -> TraceColumns:
    """Up to 18 short requests, arrivals on a grid of ticks."""
    count = draw(st.integers(1, 18))
    whole = st.integers(1, draw(st.sampled_from([6, 14])))
    gap = st.integers(0, draw(st.sampled_from([8, 64])))
    column = lambda what: np.array(draw(st.lists(what, min_size=count, max_size=count)))  # noqa: E731
    scale = draw(st.sampled_from([TICK, TICK * ROUGH]))
    return TraceColumns(
        arrived_s=np.cumsum(column(gap)) * scale,
        prompt_tokens=column(whole).astype(np.int32),
        output_tokens=column(st.integers(0, 14)).astype(np.int32),
    )


def largest_of(trace: TraceColumns) -> int:
    return int((trace.prompt_tokens + trace.output_tokens).max())


@st.composite
def engines(draw: st.DrawFn, trace: TraceColumns, drafts: int = 0) -> Settings:
    seats = draw(st.integers(1, 5))
    return Settings(
        pool=draw(pools(largest_of(trace) + drafts)),
        max_num_seqs=seats,
        max_num_batched_tokens=draw(st.integers(seats * (1 + drafts), 12 + 5 * drafts)),
        max_model_len=draw(st.sampled_from([NO_LIMIT, NO_LIMIT, 12])),
        reserve_full_prompt=draw(st.booleans()),
        lone_request_exempt=draw(st.booleans()),
        async_lag_steps=draw(st.integers(0, 1)),
        watermark=draw(st.sampled_from([0.0, 0.0, 0.25])),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 2, 3])),
    )


def agree(trace: TraceColumns, engine: Settings, step: StepCosts) -> tuple[ReplayResult, Reference]:
    """Replay by both, compare all they say, and hand both back."""
    expected = Reference(trace, engine, step).run()
    got = replay(trace, engine, step)
    rows = expected.requests
    assert got.status.tolist() == [int(r.status) for r in rows]
    assert got.preemptions.tolist() == [r.preemptions for r in rows]
    refused = {int(status) for status in REFUSED}
    assert [-1 if s in refused else r for s, r in zip(got.status, got.replica, strict=True)] == [
        -1 if r.status in REFUSED else r.replica for r in rows
    ]
    assert got.output_tokens.tolist() == [r.made for r in rows]
    assert got.cached_tokens.tolist() == [r.cached for r in rows]
    assert got.steps == expected.steps
    for column, value in (("arrived_s", "arrived"), ("kv_token_s", "kv_token_s"), ("kv_unit_s", "kv_unit_s")):
        np.testing.assert_allclose(getattr(got, column), [getattr(r, value) for r in rows], rtol=1e-9, atol=1e-12)
    for column, value in (("queue_s", "scheduled"), ("ttft_s", "first_token"), ("e2e_s", "end")):
        absolute = getattr(got, column) + got.arrived_s
        np.testing.assert_allclose(absolute, [getattr(r, value) for r in rows], rtol=1e-9, atol=1e-15, err_msg=column)
    return got, expected


@CASES
@given(st.data())
def test_one_engine(data: st.DataObject) -> None:
    trace = data.draw(workloads())
    agree(trace, data.draw(engines(trace)), data.draw(costs()))
