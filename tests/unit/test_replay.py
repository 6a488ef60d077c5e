"""The replay on cases one can count by hand, what it refuses, and the rules of engine versions."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from replay_reference import Reference

from transforms.errors import CatalogError, ConfigError, InputError
from transforms.planner.memory.kv_result import KvGroup
from transforms.planner.replay.engine import replay
from transforms.planner.replay.engine_rules import EngineRules, engine_rules
from transforms.planner.replay.replay_types import (
    NO_LIMIT,
    Caching,
    Pool,
    ReplayResult,
    Router,
    Settings,
    Status,
    TraceColumns,
    pool_of,
)
from transforms.planner.replay.step_costs import StepCosts

SECOND = StepCosts(0.0, 0.0, 0.0, 0.0, 0.0, step_s=1.0)
"""Every step takes a second."""
ENGINE = Settings(Pool(100, (4,)), max_num_seqs=4, max_num_batched_tokens=8)


def trace_of(*requests: tuple[float, int, int]) -> TraceColumns:
    """(arrival, prompt, output) of each request."""
    arrived, prompts, outputs = zip(*requests, strict=True)
    return TraceColumns(np.array(arrived), np.array(prompts, dtype=np.int32), np.array(outputs, dtype=np.int32))


def replayed(*requests: tuple[float, int, int], **engine: object) -> ReplayResult:
    return replay(trace_of(*requests), replace(ENGINE, **engine), SECOND)  # type: ignore[arg-type]


def test_a_prompt_takes_budgets_of_prefill_and_a_step_a_token() -> None:
    result = replayed((5.0, 20, 4))  # chunks of 8, 8, 4; three more tokens
    assert (result.queue_s[0], result.ttft_s[0], result.e2e_s[0]) == (0.0, 3.0, 6.0)
    assert result.kv_token_s[0] == 8 + 16 + 20 + 21 + 22 + 23
    assert result.kv_unit_s[0] == 2 + 4 + 5 + 6 + 6 + 6
    assert (result.makespan_s, result.steps, result.jumps) == (6.0, 6, 4)


def test_who_decodes_comes_before_who_waits() -> None:
    result = replayed((0.0, 8, 9), (0.5, 16, 1))
    assert result.queue_s[1] == 0.5
    assert result.ttft_s[1] == 1.0 + 3 - 0.5  # chunks of 7, 7 and 2 beside the one that decodes


def test_the_last_one_admitted_is_preempted_and_computed_again() -> None:
    result = replayed((0.0, 4, 6), (0.0, 4, 6), pool=Pool(3, (4,)), reserve_full_prompt=False)
    assert result.preemptions.tolist() == [0, 1]
    assert result.status.tolist() == [Status.COMPLETED] * 2
    assert result.e2e_s[0] == 6.0


def test_a_seat_is_free_a_step_later_under_async_scheduling() -> None:
    at_once = replayed((0.0, 4, 1), (0.0, 4, 3), (0.0, 4, 1), max_num_seqs=2)
    later = replayed((0.0, 4, 1), (0.0, 4, 3), (0.0, 4, 1), max_num_seqs=2, async_lag_steps=1)
    assert at_once.ttft_s[2] == 2.0
    assert later.ttft_s[2] == 3.0


@pytest.mark.parametrize(
    ("engine", "status"),
    [
        ({"max_model_len": 12}, Status.PROMPT_TOO_LONG),
        ({"pool": Pool(3, (4,))}, Status.LARGER_THAN_POOL),
        ({"max_num_queued_tokens": 11}, Status.QUEUE_FULL_TOKENS),
        ({"max_num_queued_reqs": 0}, Status.QUEUE_FULL_REQUESTS),
        ({"timeout_s": 1.5}, Status.TIMED_OUT),
    ],
)
def test_requests_that_nobody_answers_say_why(engine: dict[str, object], status: Status) -> None:
    assert replayed((0.0, 12, 3), **engine).status.tolist() == [status]


def test_output_is_cut_where_the_context_is_full() -> None:
    result = replayed((0.0, 10, 50), max_model_len=16)
    assert (result.output_tokens[0], result.e2e_s[0]) == (6, 2.0 + 5)


def test_a_turn_follows_the_answer_before_it() -> None:
    trace = replace(
        trace_of((0.0, 8, 3), (0.0, 8, 1), (0.0, 8, 1)),
        parent=np.array([-1, 0, 0], dtype=np.int32),
        delay_s=np.array([0.0, 2.0, 0.5]),
        from_start=np.array([False, False, True]),
    )
    result = replay(trace, ENGINE, SECOND)
    assert result.arrived_s.tolist() == [0.0, 5.0, 0.5]
    cut = replay(trace, replace(ENGINE, timeout_s=2.5), SECOND)
    assert cut.status.tolist() == [Status.TIMED_OUT, Status.NOT_SENT, Status.COMPLETED]


# either term binds first and the other one in the end, within one long decode
SWITCHES = [
    StepCosts(0.0, 0.0, 2e-6, 1e-3, 1e-6, step_s=1e-4),
    StepCosts(1e-3, 0.0, 1e-6, 0.0, 5e-6, step_s=1e-4),
]


@pytest.mark.parametrize("costs", SWITCHES)
@pytest.mark.parametrize("block", [1, 7, 16])
def test_long_decodes_are_jumped_over_exactly(costs: StepCosts, block: int) -> None:
    trace = trace_of((0.0, 30, 900), (0.1, 10, 1200), (0.3, 300, 500), (2.0, 5, 700))
    engine = Settings(Pool(-(-1400 // block), (block,)), max_num_seqs=4, max_num_batched_tokens=64)
    expected = Reference(trace, engine, costs).run()
    got = replay(trace, engine, costs)
    assert got.steps == expected.steps > 20 * got.jumps
    for column, name in (("ttft_s", "first_token"), ("e2e_s", "end")):
        values = [getattr(request, name) for request in expected.requests]
        np.testing.assert_allclose(getattr(got, column) + got.arrived_s, values, rtol=1e-12)
    for column in ("kv_token_s", "kv_unit_s"):
        values = [getattr(request, column) for request in expected.requests]
        np.testing.assert_allclose(getattr(got, column), values, rtol=1e-11)


def test_replays_on_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(5)
    arrived, prompts = np.cumsum(rng.exponential(1.0, 5000)), rng.integers(1, 40, 5000)
    trace = TraceColumns(arrived, prompts.astype(np.int32), rng.integers(1, 40, 5000).astype(np.int32))
    engines = [replace(ENGINE, max_num_seqs=seats, max_num_batched_tokens=64) for seats in (2, 4, 8, 16)]
    alone = [replay(trace, engine, SECOND).e2e_s for engine in engines]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda engine: replay(trace, engine, SECOND).e2e_s, engines))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_trace_or_engine_that_cannot_be_is_refused_in_one_line() -> None:
    good = trace_of((0.0, 4, 1), (1.0, 4, 1))
    bad_traces = [
        TraceColumns(good.arrived_s[:0], good.prompt_tokens[:0], good.output_tokens[:0]),
        replace(good, arrived_s=good.arrived_s[::-1]),
        *(replace(good, arrived_s=np.array(ends)) for ends in ([0.0, math.nan], [0.0, math.inf], [-math.inf, 0.0])),
        replace(good, prompt_tokens=np.array([4, 0], dtype=np.int32)),
        replace(good, output_tokens=good.output_tokens[:1]),
        replace(good, parent=np.array([-1, 1], dtype=np.int32), delay_s=np.zeros(2), from_start=np.zeros(2, np.bool_)),
    ]
    cached = replace(ENGINE, caching=Caching.BLOCK_IDS, prefix_block_tokens=4)
    for offsets, ids in (([0, 1, 3], [0, 1]), ([0, 2, 1], [0]), ([0, 1, 2], [0, -5])):
        blocks = {"block_offsets": np.array(offsets), "block_ids": np.array(ids, dtype=np.int32)}
        with pytest.raises(InputError, match="block_offsets"):
            replay(replace(good, **blocks), cached, SECOND)  # type: ignore[arg-type]
    bad_traces += [
        replace(good, session=np.array([0, -2], dtype=np.int32)),
        replace(good, prompt_tokens=np.array([4, 1 << 30], dtype=np.int64)),
    ]
    for trace in bad_traces:
        with pytest.raises(InputError, match=r"^trace: [^\n]+$"):
            replay(trace, ENGINE, SECOND)
    for engine in (
        replace(ENGINE, max_num_batched_tokens=3),
        replace(ENGINE, replicas=0),
        replace(ENGINE, speculative_tokens=4),
        replace(ENGINE, async_lag_steps=2),
        replace(ENGINE, timeout_s=0.0),
    ):
        with pytest.raises(ConfigError, match=r"^replay: [^\n]+$"):
            replay(good, engine, SECOND)
    with pytest.raises(InputError, match="session column"):
        replay(good, replace(ENGINE, router=Router.SESSION_AFFINITY), SECOND)
    with pytest.raises(InputError, match="block_offsets"):
        replay(good, cached, SECOND)


def test_groups_of_one_kind_are_one_kind_of_the_pool() -> None:
    groups = [
        KvGroup("a", 16, None, 100),
        KvGroup("b", 16, None, 100),
        KvGroup("c", 16, 8, 50),
        KvGroup("d", 1, 0, 0, 7),
    ]
    assert pool_of(groups, 10_000) == Pool(10_000, (16, 16), (NO_LIMIT, 8), (200, 50), 7)


def test_engine_versions_schedule_differently() -> None:
    assert engine_rules("0.11.2") == EngineRules(
        reserve_full_prompt=False, lone_request_exempt=False, async_lag_steps=0
    )
    assert engine_rules("0.19.0") == EngineRules(reserve_full_prompt=True, lone_request_exempt=False, async_lag_steps=1)
    assert engine_rules() == EngineRules(reserve_full_prompt=True, lone_request_exempt=True, async_lag_steps=1)
    with pytest.raises(CatalogError, match="not known"):
        engine_rules("9.9")
