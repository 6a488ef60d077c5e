"""The sample's engine keeps to physics: floors of the hardware, one pool, turns in a queue, causes before effects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from transforms.sample.calls import ENGINE, HOLD, INSTANT, OK, TIMEOUT, Calls, Chains, Plan, Sessions, calls_of, mixed
from transforms.sample.replica import Replica, Work
from transforms.sample.services import AGENT, CHAT, SERVICES, SUMMARISER, Engine, Service
from transforms.sample.simulation import Timings, simulate
from transforms.sample.traffic import Traffic, traffic_of

ONE_REPLICA = replace(CHAT, engine=replace(CHAT.engine, replicas=1))


def plan_of(starts_s: list[float], parents: list[int] | None = None, **columns: np.ndarray) -> Plan:
    """Chains of calls; `columns` has at least chain, prompt_tokens and output_tokens."""
    rows, chains = len(columns["chain"]), len(starts_s)
    columns.setdefault("session", columns["chain"])
    columns.setdefault("uid", mixed(1, np.arange(rows)))
    identities = np.arange(chains).astype(np.uint64)
    return Plan(
        Sessions(identities, np.zeros(chains, np.int64), np.zeros(chains, np.int64)),
        Chains(np.array(starts_s), np.array(parents or [-1] * chains), np.zeros(chains, np.int64)),
        calls_of(rows, **columns),
    )


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.fixture(scope="module", params=SERVICES, ids=lambda s: s.name)
def ran(request: pytest.FixtureRequest) -> tuple[Service, Traffic]:
    """Two days of a service, busy enough to queue."""
    return request.param, traffic_of(request.param.name, 2, 2, 0.6)


def through_engine(traffic: Traffic) -> np.ndarray:
    return (traffic.calls.mode == ENGINE) & ~np.isnan(traffic.timings.end_s)


def test_nothing_beats_the_hardware(ran: tuple[Service, Traffic]) -> None:
    service, traffic = ran
    engine, calls, timings = service.engine, traffic.calls, traffic.timings
    rows = through_engine(traffic)
    new = (calls.prompt_tokens - timings.cached_tokens)[rows]
    ttft_s = (timings.first_s - timings.start_s)[rows]
    assert (ttft_s >= 2 * engine.linear_params * new / engine.peak_flop_per_s).all()
    assert (ttft_s >= engine.weights_read_bytes / engine.bandwidth_bytes_per_s).all()
    steps = calls.output_tokens[rows] - 1
    decode_s = (timings.end_s - timings.first_s)[rows]
    floor_s = steps * engine.weights_read_bytes / engine.bandwidth_bytes_per_s
    assert (decode_s >= floor_s * (1 - 1e-6) - 1e-6).all()


def test_causes_come_before_effects(ran: tuple[Service, Traffic]) -> None:
    _, traffic = ran
    calls, chains, timings = traffic.calls, traffic.chains, traffic.timings
    started = ~np.isnan(timings.start_s)
    assert (timings.first_s[started] >= timings.start_s[started]).all()
    assert (timings.end_s[started] >= timings.first_s[started]).all()
    order = np.argsort(calls.chain, kind="stable")
    order = order[started[order]]
    same = calls.chain[order][1:] == calls.chain[order][:-1]
    gaps_s = timings.start_s[order[1:][same]] - timings.end_s[order[:-1][same]]
    assert (gaps_s >= calls.gap_s[order[1:][same]] - 1e-6).all()
    heads = np.unique(calls.chain, return_index=True)[1]
    children = heads[(chains.parent[calls.chain[heads]] >= 0) & started[heads]]
    parents = chains.parent[calls.chain[children]]
    assert (timings.start_s[children] >= timings.end_s[parents]).all()


def test_the_pool_is_never_exceeded(ran: tuple[Service, Traffic]) -> None:
    service, traffic = ran
    calls, timings = traffic.calls, traffic.timings
    rows = through_engine(traffic)
    for replica in range(service.engine.replicas):
        mine = rows & (timings.replica == replica)
        held = calls.prompt_tokens[mine] + calls.output_tokens[mine]
        at_s = np.concatenate([timings.first_s[mine], timings.end_s[mine]])
        change = np.concatenate([held, -held])
        level = np.cumsum(change[np.lexsort((change, at_s))])
        assert 0 < level.max() <= service.engine.pool_tokens
    assert (timings.cached_tokens[rows] < calls.prompt_tokens[rows]).all()


def test_no_call_outlasts_its_timeout(ran: tuple[Service, Traffic]) -> None:
    service, traffic = ran
    spent_s = (traffic.timings.end_s - traffic.timings.start_s)[through_engine(traffic)]
    assert spent_s.max() < service.timeout_s


def run_alone(prompt: int, output: int, engine: Engine = CHAT.engine, shared: int = 0) -> Timings:
    columns = {"chain": ints(0), "prompt_tokens": ints(prompt), "output_tokens": ints(output)}
    plan = plan_of([5.0], shared_tokens=ints(shared), **columns)
    return simulate(plan, replace(CHAT, engine=engine), 1e9)


def test_a_call_alone_takes_what_its_steps_take() -> None:
    timings, engine = run_alone(2_000, 101), CHAT.engine
    read_s = engine.bandwidth_bytes_per_s * engine.bandwidth_ratio
    step_s = engine.weights_read_bytes / read_s + engine.step_overhead_s + engine.sequence_overhead_s
    fewest, most = (step_s + engine.kv_token_bytes * tokens / read_s for tokens in (2_000, 2_101))
    assert 100 * fewest <= timings.end_s[0] - timings.first_s[0] <= 100 * most
    assert timings.start_s[0] == 5.0


def test_one_token_ends_with_the_prefill() -> None:
    timings = run_alone(2_000, 1)
    assert timings.end_s[0] == timings.first_s[0]


def test_a_cached_prefix_saves_prefill() -> None:
    cold, warm = run_alone(20_000, 5), run_alone(20_000, 5, shared=16_005)
    assert cold.cached_tokens[0] == 0
    assert warm.cached_tokens[0] == 16_000
    assert warm.first_s[0] - 5 < 0.5 * (cold.first_s[0] - 5)


def test_prompts_wait_for_those_before_them() -> None:
    plan = plan_of(
        [0.0, 0.001, 0.002], chain=ints(0, 1, 2), prompt_tokens=ints(30_000, 100, 100), output_tokens=ints(50, 5, 5)
    )
    timings = simulate(plan, ONE_REPLICA, 1e9)
    assert timings.first_s[0] < timings.first_s[1] < timings.first_s[2]
    assert timings.first_s[1] - timings.start_s[1] > 20 * (run_alone(100, 5).first_s[0] - 5)


def test_a_prompt_that_does_not_fit_waits_for_room() -> None:
    engine = replace(CHAT.engine, replicas=1, pool_tokens=10_000)
    plan = plan_of([0.0, 0.1], chain=ints(0, 1), prompt_tokens=ints(8_000, 8_000), output_tokens=ints(200, 10))
    timings = simulate(plan, replace(CHAT, engine=engine), 1e9)
    assert timings.first_s[1] > timings.end_s[0]


def test_the_last_context_stays_until_others_push_it_out() -> None:
    engine = replace(CHAT.engine, replicas=1, pool_tokens=60_000)
    service = replace(CHAT, engine=engine)
    columns = {
        "prompt_tokens": ints(10_000, 12_000, 40_000),
        "output_tokens": ints(20, 20, 20),
        "reuse_tokens": ints(0, 10_020, 0),
        "gap_s": np.array([0.0, 100.0, 0.0]),
    }
    quiet = simulate(plan_of([0.0, 500.0], chain=ints(0, 0, 1), **columns), service, 1e9)
    busy = simulate(plan_of([0.0, 50.0], chain=ints(0, 0, 1), **columns), service, 1e9)
    assert quiet.cached_tokens[1] == 10_016
    assert busy.cached_tokens[1] == 10_016
    columns["prompt_tokens"][2] = 55_000
    assert simulate(plan_of([0.0, 50.0], chain=ints(0, 0, 1), **columns), service, 1e9).cached_tokens[1] == 0


def test_sequences_share_the_steps_and_slow_each_other() -> None:
    replica = Replica(CHAT.engine)
    alone, many = (decode_pace(n) for n in (1, 64))
    assert many < alone
    assert 64 * many > 20 * alone
    assert replica.next_s() == float("inf")


def decode_pace(sequences: int) -> float:
    """Steps a second once `sequences` prompts of 4,000 tokens decode."""
    replica = Replica(CHAT.engine)
    for call in range(sequences):
        replica.add(Work(call, call, 4_000, 10_000_000 // 4_000, 0, 0, 0.0))
    replica.engine = replace(CHAT.engine, pool_tokens=10**9)
    replica.settle()
    while replica.begun is not None:
        replica.advance(replica.next_s())
        replica.settle()
    return replica.steps_per_s


def test_subagents_hold_their_parent_back() -> None:
    plan = plan_of(
        [0.0, float("nan"), float("nan")],
        [-1, 0, 0],
        chain=ints(0, 1, 1, 2, 0),
        session=ints(0, 0, 0, 0, 0),
        prompt_tokens=ints(1_000, 500, 700, 600, 1_200),
        output_tokens=ints(10, 10, 400, 10, 10),
        gap_s=np.array([0.0, 0.2, 3.0, 0.2, 0.5]),
    )
    timings = simulate(plan, replace(AGENT, engine=replace(AGENT.engine, replicas=2)), 1e9)
    assert timings.start_s[1] == timings.start_s[3] == pytest.approx(timings.end_s[0] + 0.2)
    assert timings.start_s[2] == pytest.approx(timings.end_s[1] + 3.0)
    assert timings.start_s[4] == pytest.approx(max(timings.end_s[2], timings.end_s[3]) + 0.5)


def test_a_stuck_call_holds_its_room() -> None:
    engine = replace(CHAT.engine, replicas=1, pool_tokens=10_000)
    plan = plan_of(
        [0.0, 1.0],
        chain=ints(0, 1),
        prompt_tokens=ints(9_500, 1_000),
        output_tokens=ints(1, 5),
        mode=ints(HOLD, ENGINE),
        outcome=ints(TIMEOUT, OK),
        fixed_s=np.array([60.0, 0.0]),
    )
    timings = simulate(plan, replace(CHAT, engine=engine), 1e9)
    assert timings.end_s[0] == 60.0
    assert timings.first_s[1] > 60.0


def test_what_passes_beside_the_engine_takes_its_time_and_no_room() -> None:
    columns = {"prompt_tokens": ints(30_000, 100), "output_tokens": ints(5, 5), "fixed_s": np.array([7.0, 0.0])}
    timings = simulate(plan_of([0.0, 0.5], chain=ints(0, 1), mode=ints(INSTANT, ENGINE), **columns), ONE_REPLICA, 1e9)
    assert timings.end_s[0] == 7.0
    assert timings.first_s[1] - 0.5 == pytest.approx(run_alone(100, 5).first_s[0] - 5, abs=0.1)


def test_sessions_of_agents_stay_on_their_replica_and_documents_spread() -> None:
    traffic = traffic_of(AGENT.name, 2, 1, 0.2)
    rows = through_engine(traffic)
    replicas = [len(set(traffic.timings.replica[rows & (traffic.calls.session == s)])) for s in range(30)]
    assert np.mean([n == 1 for n in replicas if n]) > 0.8
    spread = traffic_of(SUMMARISER.name, 2, 1, 0.2)
    shares = np.bincount(spread.timings.replica[through_engine(spread)]) / through_engine(spread).sum()
    assert shares.min() > 0.15


def test_what_would_start_after_the_end_does_not() -> None:
    traffic = traffic_of(CHAT.name, 2, 1, 0.05)
    started = traffic.timings.start_s[~np.isnan(traffic.timings.start_s)]
    assert started.max() < 86_400
    assert isinstance(traffic.calls, Calls)
