"""The replay as textbook queues, and what queueing theory says their mean wait is."""

from __future__ import annotations

import math

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import Pool, ReplayResult, Router, Settings, TraceColumns
from transforms.planner.replay.step_costs import StepCosts

STEP_S = 0.001
MEAN_TOKENS = 600
SERVICE_S = MEAN_TOKENS * STEP_S
EACH_STEP = StepCosts(0.0, 0.0, 0.0, 0.0, 0.0, step_s=STEP_S)
T_99 = {8: 3.4995, 30: 2.7564}
"""Student's t for a two-sided 99 % interval of so many means."""


def mean_wait_s(seed: int, arrivals: int, load: float, **engine: object) -> float:
    """Mean queue_s of Poisson arrivals that keep all servers together busy a share `load` of the time."""
    return float(replayed(seed, arrivals, load, **engine).queue_s.mean())


def replayed(seed: int, arrivals: int, load: float, **engine: object) -> ReplayResult:
    """The replay of Poisson arrivals that would keep all servers together busy a share `load` of the time."""
    constant = bool(engine.pop("constant", False))
    rng = np.random.default_rng(seed)
    seats, replicas = int(engine.get("max_num_seqs", 1)), int(engine.get("replicas", 1))  # type: ignore[call-overload]
    gaps = rng.exponential(SERVICE_S / (load * seats * replicas), arrivals)
    outputs = np.full(arrivals, MEAN_TOKENS) if constant else rng.geometric(1 / MEAN_TOKENS, arrivals)
    settings = Settings(
        Pool(1 << 40),
        **{"max_num_seqs": 1, "max_num_batched_tokens": 4096, "seed": seed, **engine},  # type: ignore[arg-type]
    )
    trace = TraceColumns(np.cumsum(gaps), np.ones(arrivals, dtype=np.int32), outputs.astype(np.int32))
    return replay(trace, settings, EACH_STEP)


def interval(seeds: int, arrivals: int, load: float, **engine: object) -> tuple[float, float]:
    """(mean, half width of its 99 % interval) of the mean wait over `seeds` replays, seconds."""
    means = [mean_wait_s(seed, arrivals, load, **engine) for seed in range(seeds)]
    return float(np.mean(means)), T_99[seeds] * float(np.std(means, ddof=1)) / math.sqrt(seeds)


def constant_service_s(load: float) -> float:
    """M/D/1."""
    return load * SERVICE_S / (2 * (1 - load))


def geometric_service_s(load: float) -> float:
    """M/G/1 (Pollaczek–Khinchine) with geometric service: M/M/1 but for half a step."""
    second_moment = STEP_S**2 * (2 * MEAN_TOKENS**2 - MEAN_TOKENS)
    return load / SERVICE_S * second_moment / (2 * (1 - load))


def many_servers_s(load: float, servers: int) -> float:
    """M/M/c (Erlang C)."""
    offered = load * servers
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
    waits = blocked / (1 - load * (1 - blocked))
    return waits * SERVICE_S / (servers * (1 - load))


def round_robin_s(load: float, replicas: int) -> float:
    """E_c/M/1: every c-th of Poisson arrivals comes to each of c queues."""
    rate, served = load * replicas / SERVICE_S, 1 / SERVICE_S
    sigma = load
    for _ in range(10_000):
        sigma = (rate / (rate + served * (1 - sigma))) ** replicas
    return sigma * SERVICE_S / (1 - sigma)


def assert_inside(measured: tuple[float, float], low_s: float, high_s: float) -> None:
    """The 99 % interval meets [low, high]."""
    mean, half = measured
    assert mean - half <= high_s, (mean, half, low_s, high_s)
    assert mean + half >= low_s, (mean, half, low_s, high_s)


def check_all(seeds: int, arrivals: int, load: float) -> float:
    """Hold every queue to its theory at one load; largest half width of an interval, as a share of the theory."""
    widths = []
    cases = [
        ({"constant": True}, constant_service_s(load), 0.0),
        ({}, geometric_service_s(load), 0.0),
        # a free seat is taken at the next step, and all wait for the same steps
        ({"max_num_seqs": 4}, many_servers_s(load, 4), STEP_S),
        ({"replicas": 4, "router": Router.RANDOM}, geometric_service_s(load), 0.0),
        ({"replicas": 4, "router": Router.ROUND_ROBIN}, round_robin_s(load, 4), STEP_S),
    ]
    for engine, theory, slack in cases:
        measured = interval(seeds, arrivals, load, **engine)
        assert_inside(measured, theory - slack / 2, theory + slack)
        widths.append(measured[1] / theory)
    mean, half = interval(seeds, arrivals, load, replicas=4, router=Router.LEAST_OUTSTANDING)
    assert many_servers_s(load, 4) - half <= mean <= round_robin_s(load, 4) + half
    return max(widths)
