"""The closed forms of latency: against queueing theory where it applies, and at their limits."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import STEP, replica

from transforms.planner.sizing.latency_estimate import Traffic, _erlang_c, latency, replicas_for
from transforms.planner.sizing.replica import Replica


def traffic(rate_per_s: float, prompt: float = 2000.0, output: float = 200.0) -> Traffic:
    prompts = np.full(16, prompt)
    return Traffic(rate_per_s, output, prompt + output / 2, prompts, 0 * prompts)


def erlang_c(servers: int, offered: float) -> float:
    """Textbook form of Erlang's C, by its sums."""
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("servers", "offered"), [(1, 0.3), (1, 0.9), (4, 3.0), (20, 19.0), (50, 20.0)])
def test_probability_of_waiting_is_erlangs(servers: int, offered: float) -> None:
    assert _erlang_c(servers, offered) == pytest.approx(erlang_c(servers, offered), rel=1e-9)


def test_one_replica_with_equal_prompts_waits_as_m_d_1() -> None:
    """All steps full chunks, nobody decoding: the mean wait is ρ·S / (2·(1 − ρ)) of constant service."""
    one = replica(max_num_batched_tokens=2000)
    alone = dataclasses.replace(one, step=dataclasses.replace(STEP, sequence_overhead_s=0.0))
    service_s = (2000 * STEP.token_flop + 2000 * 1000 * STEP.pair_flop) / STEP.flop_per_s + STEP.step_overhead_s
    for load in (0.3, 0.6, 0.8):
        found = latency(traffic(load / service_s, output=0.0), alone, 1)
        mean_wait_s = found.wait_ratio * found.wait_mean_s
        assert mean_wait_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=1e-6)


@given(rate=st.floats(0.01, 50), replicas=st.integers(1, 40))
def test_more_replicas_are_never_slower(rate: float, replicas: int) -> None:
    one = replica()
    fewer, more = latency(traffic(rate), one, replicas), latency(traffic(rate), one, replicas + 1)
    assert more.tpot_s <= fewer.tpot_s
    assert more.late_ratio(2.0) <= fewer.late_ratio(2.0) + 1e-12


def test_a_fleet_that_is_overrun_is_infinitely_slow() -> None:
    found = latency(traffic(500), replica(), 1)
    assert not found.is_stable
    assert found.late_ratio(1e9) == 1.0
    assert math.isinf(found.ttft_s(0.5))
    assert math.isinf(found.queue_s(0.5))


def test_slots_limit_a_replica_as_much_as_its_memory() -> None:
    """200 concurrent requests do not fit 64 slots, nor a pool of a few contexts, however quick the steps are."""
    assert latency(traffic(10), replica(), 1).is_stable
    assert not latency(traffic(10), replica(max_num_seqs=8), 1).is_stable
    assert not latency(traffic(10), replica(16_000), 1).is_stable


def test_token_time_is_the_fixed_point_of_its_batch() -> None:
    """τ = base + B·KV read with B = λ·O·τ: what the closed form says is what iterating comes to."""
    rate, output, context = 4.0, 200.0, 2100.0
    found = latency(traffic(rate), replica(), 1)
    token_s = STEP.base_s
    for _ in range(200):
        decoding = rate * output * token_s
        per_request_s = STEP.kv_token_bytes * context / STEP.bytes_per_s + STEP.sequence_overhead_s
        token_s = STEP.base_s + decoding * per_request_s
    assert found.tpot_s == pytest.approx(token_s, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(0.1, 100), ttft=st.floats(0.3, 5), tpot=st.floats(0.02, 0.2))
def test_the_count_is_the_smallest_that_keeps_both_promises(rate: float, ttft: float, tpot: float) -> None:
    one = replica(ttft_p95_s=ttft, tpot_p95_s=tpot)
    count = replicas_for(traffic(rate), one)
    assert count is not None
    assert is_kept(rate, one, count)
    assert is_kept(rate, one, count + 1)
    assert count == 1 or not is_kept(rate, one, count - 1)


def is_kept(rate: float, one: Replica, replicas: int) -> bool:
    found = latency(traffic(rate), one, replicas)
    return found.tpot_s <= one.tpot_p95_s and found.ttft_s(0.95) <= one.ttft_p95_s + 1e-6


def test_quantiles_rise_and_contain_the_prefill() -> None:
    found = latency(traffic(8), replica(), 1)
    values = [found.ttft_s(ratio) for ratio in (0.5, 0.9, 0.95, 0.99)]
    assert values == sorted(values)
    assert values[0] >= found.service_s.min() * (1 - 1e-9)
    assert [found.queue_s(r) for r in (0.5, 0.99)] == sorted(found.queue_s(r) for r in (0.5, 0.99))
