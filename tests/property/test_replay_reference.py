"""The kernel against the plain step-by-step engine: the same schedule, and every time within 1e-9 of it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replay_reference import REFUSED, Reference

from transforms.planner.kernel.run import run
from transforms.planner.replay.engine import replay, result_of
from transforms.planner.replay.replay_memory import allocate
from transforms.planner.replay.replay_types import (
    NO_LIMIT,
    Caching,
    Pool,
    ReplayResult,
    RequestedRule,
    Router,
    Settings,
    TraceColumns,
)
from transforms.planner.replay.step_costs import StepCosts

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
        prefill_pair_ratio=draw(st.sampled_from([1.0, 0.25])),
        sequence_memory_s=draw(st.integers(0, 1)) * scale,
        mixed_context_s=draw(st.integers(0, 1)) * scale / 8,
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
    same(got, expected)
    return got, expected


KV = ("kv_token_s", "kv_unit_s", "kv_shared_unit_s")


def same(got: ReplayResult, expected: Reference) -> None:
    """Hold the kernel's results to the reference's."""
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
    assert got.peak_units == max((used for *_, used in expected.spans), default=0)
    for column, value in (("arrived_s", "arrived"), *((name, name) for name in KV)):
        np.testing.assert_allclose(getattr(got, column), [getattr(r, value) for r in rows], rtol=1e-9, atol=1e-12)
    for column, value in (("queue_s", "scheduled"), ("ttft_s", "first_token"), ("e2e_s", "end")):
        absolute = getattr(got, column) + got.arrived_s
        np.testing.assert_allclose(absolute, [getattr(r, value) for r in rows], rtol=1e-9, atol=1e-15, err_msg=column)


@CASES
@given(st.data())
def test_one_engine(data: st.DataObject) -> None:
    trace = data.draw(workloads())
    agree(trace, data.draw(engines(trace)), data.draw(costs()))


@CASES
@given(st.data())
def test_limits_and_speculation(data: st.DataObject) -> None:
    drafts = data.draw(st.integers(0, 2))
    trace = data.draw(workloads())
    blocks = st.sampled_from([4, 6])
    engine = data.draw(engines(trace, drafts))
    if drafts:
        engine = replace(engine, pool=Pool(data.draw(st.integers(2, 20)), (data.draw(blocks),)))
    engine = replace(
        engine,
        timeout_s=data.draw(st.sampled_from([math.inf, 24 * TICK, 96 * TICK])),
        max_num_queued_reqs=data.draw(st.sampled_from([NO_LIMIT, 1, 3])),
        max_num_queued_tokens=data.draw(st.sampled_from([NO_LIMIT, 20])),
        requested_rule=data.draw(st.sampled_from([RequestedRule.IGNORE, RequestedRule.REJECT])),
        speculative_tokens=drafts,
        acceptance_ratio=data.draw(st.sampled_from([0.0, 0.3, 0.75, 1.0])),
    )
    requested = np.array([data.draw(st.integers(-1, 16)) for _ in range(trace.rows)], dtype=np.int32)
    agree(replace(trace, requested_tokens=requested), engine, data.draw(costs()))


def sessions_of(data: st.DataObject, trace: TraceColumns) -> TraceColumns:
    """The trace with some requests caused by earlier ones, each in its parent's session."""
    parent, session = np.full(trace.rows, -1, dtype=np.int32), np.zeros(trace.rows, dtype=np.int32)
    for i in range(trace.rows):
        parent[i] = data.draw(st.integers(-1, i - 1)) if i else -1
        session[i] = session[parent[i]] if parent[i] >= 0 else i
    delays = np.array([data.draw(st.integers(0, 12)) for _ in range(trace.rows)])
    return replace(
        trace,
        parent=parent,
        session=np.where(data.draw(st.booleans()), session, np.where(session % 3 == 2, -1, session)).astype(np.int32),
        delay_s=delays * data.draw(st.sampled_from([TICK, TICK * ROUGH])),
        from_start=np.array([data.draw(st.booleans()) for _ in range(trace.rows)]),
    )


@CASES
@given(st.data())
def test_sessions_on_several_replicas(data: st.DataObject) -> None:
    trace = sessions_of(data, data.draw(workloads()))
    engine = replace(
        data.draw(engines(trace)),
        replicas=data.draw(st.integers(1, 3)),
        router=data.draw(st.sampled_from([r for r in Router if r != Router.PREFIX_AFFINITY])),
        seed=data.draw(st.integers(0, 2**63 - 1)),
        timeout_s=data.draw(st.sampled_from([math.inf, math.inf, 64 * TICK])),
        max_num_queued_reqs=data.draw(st.sampled_from([NO_LIMIT, 2])),
        failure_ends_session=data.draw(st.booleans()),
    )
    agree(trace, engine, data.draw(costs()))


def cached(data: st.DataObject, trace: TraceColumns) -> tuple[TraceColumns, Settings]:
    """The trace with prefix blocks, and an engine that caches by them or by session."""
    block = data.draw(st.sampled_from([1, 2]))
    tokens = block * data.draw(st.sampled_from([1, 2]))
    chains = st.sampled_from(
        [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 8, 9, 10, 11, 12], [0, 13, 14, 15], [16, 17, 18, 19, 20]]
    )
    ids = [data.draw(chains)[: int(p) // tokens] for p in trace.prompt_tokens]
    common = [data.draw(st.integers(0, 14)) for _ in ids] if data.draw(st.booleans()) else []
    trace = replace(
        trace,
        block_offsets=np.cumsum([0, *map(len, ids)]).astype(np.int64),
        block_ids=np.array([*chain(*ids)], dtype=np.int32),
        shared_tokens=np.array(common, dtype=np.int32),
    )
    most = math.ceil(largest_of(trace) / block)
    window = data.draw(st.booleans())
    engine = replace(
        data.draw(engines(trace)),
        pool=Pool(
            data.draw(st.integers(most, 4 * most)) + 2 * window,
            (block, 2) if window else (block,),
            (NO_LIMIT, 2) if window else (NO_LIMIT,),
            (1, 1) if window else (1,),
        ),
        caching=data.draw(st.sampled_from([Caching.BLOCK_IDS, Caching.SESSION])),
        prefix_block_tokens=tokens,
        replicas=data.draw(st.integers(1, 2)),
        router=data.draw(st.sampled_from([Router.ROUND_ROBIN, Router.PREFIX_AFFINITY, Router.SESSION_AFFINITY])),
        affinity_slack_requests=data.draw(st.sampled_from([1, 32])),
        timeout_s=data.draw(st.sampled_from([math.inf, math.inf, 64 * TICK])),
    )
    return trace, engine


def policies(data: st.DataObject, trace: TraceColumns, engine: Settings) -> tuple[TraceColumns, Settings]:
    """Trace with some delays after answers as tool waits, one an answer, and an engine with a policy for them."""
    taken: set[int] = set()
    waits = np.zeros(trace.rows, dtype=np.bool_)
    for i in np.flatnonzero((trace.parent >= 0) & ~trace.from_start):
        if trace.parent[i] not in taken and data.draw(st.sampled_from([True, True, False])):
            waits[i] = True
            taken.add(int(trace.parent[i]))
    offload_s = data.draw(st.sampled_from([0.0, 0.0, TICK, 4 * TICK * ROUGH]))
    pin_s = data.draw(st.sampled_from([math.inf, 4 * TICK, 48 * TICK * ROUGH]))
    return replace(trace, is_tool_wait=waits), replace(engine, pin_s=pin_s, offload_s_per_unit=offload_s)


@settings(CASES, max_examples=240)
@given(st.data())
def test_tool_wait_policies(data: st.DataObject) -> None:
    """Pools that hold one to four requests: pins lie in the way of everything, and nothing may come to a halt."""
    trace, engine = cached(data, sessions_of(data, data.draw(workloads())))
    trace, engine = policies(data, trace, engine)
    got, expected = agree(trace, engine, data.draw(costs()))
    np.testing.assert_allclose(
        got.pinned_unit_s if len(got.pinned_unit_s) else np.zeros(trace.rows),
        expected.pinned_unit_s, rtol=1e-9, atol=1e-12,
    )  # fmt: skip


@settings(CASES, max_examples=60)
@given(st.data())
def test_replicas_that_come_and_go(data: st.DataObject) -> None:
    """Three replicas, of which at least the first takes arrivals; the kernel is stopped to be told."""
    trace, engine = cached(data, sessions_of(data, data.draw(workloads())))
    router = data.draw(st.sampled_from(list(Router)))
    engine = replace(engine, replicas=3, router=router, seed=data.draw(st.integers(0, 2**63 - 1)))
    step = data.draw(costs())
    times = sorted(data.draw(st.lists(st.integers(0, 500), min_size=1, max_size=5)))
    switches = [(at * TICK, data.draw(st.integers(1, 2)), data.draw(st.booleans())) for at in times]
    expected = Reference(trace, engine, step, switches).run()
    memory = allocate(trace, engine, step)
    for at, replica, is_on in switches:
        memory.world["horizon_s"] = at
        run(memory.world)
        memory.tables["replicas"]["is_off"][replica] = not is_on
        memory.world["on_count"] = int((memory.tables["replicas"]["is_off"] == 0).sum())
    memory.world["horizon_s"] = np.inf
    run(memory.world)
    same(result_of(engine, memory), expected)


@CASES
@given(st.data())
def test_prefix_caching(data: st.DataObject) -> None:
    trace = sessions_of(data, data.draw(workloads()))
    if data.draw(st.booleans()):
        trace = replace(trace, parent=trace.parent[:0], delay_s=trace.delay_s[:0], from_start=trace.from_start[:0])
    agree(*cached(data, trace), data.draw(costs()))


@settings(CASES, max_examples=60)
@given(st.data())
def test_closed_loop_and_series(data: st.DataObject) -> None:
    trace = data.draw(workloads())
    trace = replace(trace, arrived_s=trace.arrived_s * 64)
    step = StepCosts(*(value * 64 for value in data.draw(costs())[:8]))
    engine = replace(
        data.draw(engines(trace)),
        closed_loop_requests=data.draw(st.sampled_from([0, 0, 1, 3])),
        replicas=data.draw(st.integers(1, 2)),
        series=True,
    )
    got, expected = agree(trace, engine, step)
    assert got.series is not None
    start = 0.0 if engine.closed_loop_requests else float(trace.arrived_s[0])
    for i, second in enumerate(got.series.t_s):
        seen = (got.series.running[i], got.series.waiting[i], got.series.used_units[i])
        assert seen == expected.sampled(int(second), start), second
        assert math.isclose(got.series.mean_used_units[i], expected.mean_used(int(second), start), abs_tol=1e-9)


def mixed(seed: int) -> tuple[TraceColumns, Settings, StepCosts]:
    """A hundred requests, all features drawn at once, times that are no round numbers."""
    rng = np.random.default_rng(seed)
    rows, most = int(rng.integers(40, 160)), int(rng.choice([20, 80]))
    prompts, outputs = rng.integers(1, most, rows).astype(np.int32), rng.integers(0, 60, rows).astype(np.int32)
    arrived = np.cumsum(rng.exponential(float(rng.choice([0.02, 0.1, 0.4])), rows))
    parent = np.array([rng.integers(max(0, i - 10), i) if i and rng.random() < 0.5 else -1 for i in range(rows)])
    session = np.arange(rows)
    for i in np.flatnonzero(parent >= 0):
        session[i] = session[parent[i]]
    ids = [
        range(kind * 100, kind * 100 + int(p) // 16) for kind, p in zip(rng.integers(0, 6, rows), prompts, strict=True)
    ]
    trace = TraceColumns(
        arrived, prompts, outputs,
        session=session.astype(np.int32),
        block_offsets=np.cumsum([0, *map(len, ids)]).astype(np.int64),
        block_ids=np.array([*chain(*ids)], dtype=np.int32),
    )  # fmt: skip
    waits_for_tools = rng.random() < 0.5
    if rng.random() < 0.6:
        delays, from_start = rng.exponential(0.5, rows), rng.random(rows) < 0.3
        trace = replace(trace, parent=parent.astype(np.int32), delay_s=delays, from_start=from_start)
        follows = np.flatnonzero((parent >= 0) & ~from_start & waits_for_tools)
        waits = np.zeros(rows, dtype=np.bool_)
        waits[follows[np.unique(parent[follows], return_index=True)[1]]] = True
        trace = replace(trace, is_tool_wait=waits)
    block, seats, drafts = int(rng.choice([4, 16])), int(rng.integers(2, 16)), int(rng.choice([0, 0, 0, 2]))
    one = -(-(most + 62) // block)
    engine = Settings(
        Pool(int(rng.integers(one, 6 * one)), (block,)),
        max_num_seqs=seats,
        max_num_batched_tokens=int(rng.integers(seats * (1 + drafts), 100)),
        reserve_full_prompt=bool(rng.random() < 0.5),
        lone_request_exempt=bool(rng.random() < 0.5),
        async_lag_steps=int(rng.integers(0, 2)),
        watermark=float(rng.choice([0, 0.1])),
        long_prefill_token_threshold=int(rng.choice([0, 0, 7])),
        timeout_s=float(rng.choice([np.inf, 20.0])),
        speculative_tokens=drafts,
        acceptance_ratio=0.6,
        replicas=int(rng.integers(1, 4)),
        router=Router(int(rng.integers(0, 5))),
        seed=seed,
        caching=Caching(int(rng.integers(0, 3))),
        prefix_block_tokens=16,
        pin_s=float(rng.choice([0.0, 0.3, np.inf])),
        offload_s_per_unit=float(rng.choice([0.0, 0.0, 1e-3])),
        series=True,
    )
    scales = np.array([1e-3, 1e-3, 1e-5, 2e-2, 2e-4, 2e-3, 1e-4, 1e-5])
    return trace, engine, StepCosts(*(rng.random(8) * scales))


@pytest.mark.parametrize("seed", range(40))
def test_longer_workloads_with_all_features_at_once(seed: int) -> None:
    agree(*mixed(seed))


@pytest.mark.soak
def test_a_thousand_longer_workloads() -> None:
    for seed in range(40, 1040):
        agree(*mixed(seed))
