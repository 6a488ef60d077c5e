"""Replays that stand for each other come out as if each had been made, and no others are taken for one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from transforms.errors import ConfigError
from transforms.planner.fleet_control.autoscaler import Autoscaling
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import Caching, Pool, RequestedRule, Router, Settings, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.whatif.shared_replays import SharedReplays, most_seats, unbound

COSTS = StepCosts(2e-5, 0.0, 0.0, 0.02, 1e-8, step_s=0.002)
ENGINE = Settings(
    Pool(3_000), 64, 512, max_model_len=4_096, replicas=2, router=Router.SESSION_AFFINITY, caching=Caching.SESSION,
    async_lag_steps=1,
)  # fmt: skip


def trace(seed: int, requests_per_s: float = 6.0) -> TraceColumns:
    """Ten minutes of sessions of four turns that begin at random moments."""
    rng = np.random.default_rng(seed)
    count = int(150 * requests_per_s) * 4
    arrived = np.sort(rng.uniform(0, 600, count))
    whole = lambda low, high: rng.integers(low, high, count).astype(np.int32)  # noqa: E731
    return TraceColumns(arrived, whole(50, 900), whole(1, 120), session=whole(0, count // 4))


def same(one, other) -> None:
    for name in ("status", "arrived_s", "queue_s", "ttft_s", "e2e_s", "replica", "preemptions", "kv_token_s"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lag", [0, 1])
def test_every_limit_on_seats_comes_out_as_its_own_replay(seed: int, lag: int) -> None:
    """Rising and falling, from limits that bind to those that do not; only the latter share."""
    asked, shared = trace(seed), SharedReplays()
    engine = replace(ENGINE, async_lag_steps=lag)
    found = {}
    for limit in (64, 4, 24, 48, 12, 128, 8):
        settings = replace(engine, max_num_seqs=limit)
        found[limit] = shared.result(asked, settings, COSTS)
        same(found[limit], replay(asked, settings, COSTS))
    assert found[128] is found[64]
    assert found[4] is not found[64]
    assert not np.array_equal(found[4].e2e_s, found[64].e2e_s)


def test_a_max_model_len_that_cuts_nobody_is_none() -> None:
    asked, shared = trace(7, 2.0), SharedReplays()
    first = shared.result(asked, ENGINE, COSTS)
    assert shared.result(replace(asked), replace(ENGINE, max_model_len=2_000), COSTS) is first
    same(first, replay(asked, ENGINE, COSTS))
    longest = int((asked.prompt_tokens + asked.output_tokens).max())
    cut = replace(ENGINE, max_model_len=longest - 1)
    assert shared.result(asked, cut, COSTS) is not first
    same(shared.result(asked, cut, COSTS), replay(asked, cut, COSTS))
    told = replace(ENGINE, requested_rule=RequestedRule.REJECT)
    assert unbound(asked, told) == told, "a caller's own limit may not fit, whatever is said"


@pytest.mark.parametrize(
    "other",
    [{"replicas": 3}, {"pool": Pool(2_999)}, {"max_num_batched_tokens": 511}, {"seed": 1},
     {"autoscaling": Autoscaling(max_replicas=3), "max_num_seqs": 63}],
    ids=lambda other: next(iter(other)),
)  # fmt: skip
def test_nothing_else_is_shared(other: dict[str, object]) -> None:
    asked, shared = trace(1, 1.0), SharedReplays()
    first = shared.result(asked, replace(ENGINE, autoscaling=other.get("autoscaling")), COSTS)
    assert shared.result(asked, replace(ENGINE, **other), COSTS) is not first
    assert shared.result(trace(2, 1.0), ENGINE, COSTS) is not first
    assert shared.result(asked, ENGINE, COSTS._replace(step_s=0.003)) is not first


def test_what_the_engine_refuses_is_refused_though_it_need_not_be_replayed() -> None:
    asked, shared = trace(1, 1.0), SharedReplays()
    shared.result(asked, ENGINE, COSTS)
    with pytest.raises(ConfigError, match="max_num_batched_tokens 512 is below"):
        shared.result(asked, replace(ENGINE, max_num_seqs=513), COSTS)


def test_seats_are_never_counted_too_few() -> None:
    """Of a replay whose seats run out, all of them."""
    asked = trace(3, 12.0)
    for limit in (2, 5, 9):
        result = replay(asked, replace(ENGINE, max_num_seqs=limit), COSTS)
        assert most_seats(result, 1.0) >= limit
