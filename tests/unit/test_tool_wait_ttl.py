"""Keeping KV through tool waits: break-even, best time, what the week's waits cost, and the replay's word on it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from planner_week import TOOL_WAITS, attempt, replica, site, workload

from transforms.planner.memory.kv_result import KvGroup
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import Caching, Pool, Settings, Status, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.sizing.demands_of_week import demands_of_week
from transforms.planner.tool_waits.policy_rows import policy_rows
from transforms.planner.tool_waits.ttl_cost import Gaps, best_ttl_s, break_even_s, gaps_of, ttl_cost_s

BREAK_EVEN_S = 16.0
SHORT_S, LONG_S, SHORT_RATIO = 2.0, 600.0, 0.7


def alike(wait_s: np.ndarray, ratio: float = 0.05) -> Gaps:
    """Waits of one context that holds `ratio` of a replica and takes 16 × that to compute: w* = 16 s."""
    whole = np.full(len(wait_s), ratio)
    return Gaps(wait_s, whole * 1e9, whole, whole * BREAK_EVEN_S)


def mixture_optimum_s(short_ratio: float = SHORT_RATIO) -> float:
    """Where the hazard of a mixture of two exponentials falls to 1/w*: before it, waiting on pays."""
    more, less = 1 / SHORT_S - 1 / BREAK_EVEN_S, 1 / BREAK_EVEN_S - 1 / LONG_S
    return math.log(short_ratio * more / ((1 - short_ratio) * less)) / (1 / SHORT_S - 1 / LONG_S)


@pytest.mark.parametrize(("mean_s", "ttl_s"), [(4.0, math.inf), (12.0, math.inf), (20.0, 0.0), (100.0, 0.0)])
def test_exponential_waits_are_kept_for_ever_or_not_at_all(mean_s: float, ttl_s: float):
    waits = np.random.default_rng(1).exponential(mean_s, 20_000)
    assert best_ttl_s(alike(waits)) == ttl_s


def test_two_lengths_of_wait_have_the_optimum_of_their_closed_form():
    waits = np.array([SHORT_S] * 700 + [LONG_S] * 300)
    costs = {0.0: 16 * 1000, SHORT_S: 2 * 1000 + 16 * 300, LONG_S: 2 * 700 + 600 * 300}
    for ttl_s, cost in costs.items():
        assert ttl_cost_s(alike(waits), ttl_s) == pytest.approx(0.05 * cost)
    assert best_ttl_s(alike(waits)) == SHORT_S
    # long waits that pay: keep all; no short ones: keep none
    assert best_ttl_s(alike(np.array([2.0, 15.0]))) == math.inf
    assert best_ttl_s(alike(np.full(10, LONG_S))) == 0.0


def test_a_mixture_of_exponentials_has_the_optimum_of_its_closed_form():
    rng = np.random.default_rng(2)
    short = rng.random(200_000) < SHORT_RATIO
    gaps = alike(np.where(short, rng.exponential(SHORT_S, 200_000), rng.exponential(LONG_S, 200_000)))
    want_s = mixture_optimum_s()
    assert want_s == pytest.approx(5.659, abs=1e-3)
    assert best_ttl_s(gaps) == pytest.approx(want_s, rel=0.15)
    assert ttl_cost_s(gaps, best_ttl_s(gaps)) == pytest.approx(ttl_cost_s(gaps, want_s), rel=0.002)


def test_where_the_pool_is_never_full_holding_is_free():
    assert best_ttl_s(alike(np.full(5, 1e5)), full_ratio=0.0) == math.inf
    assert ttl_cost_s(alike(np.full(5, 1e5)), math.inf, full_ratio=0.0) == 0.0
    assert best_ttl_s(alike(np.full(5, 20.0)), full_ratio=0.5) == math.inf, "half the price holds twice as long"


def test_the_break_even_of_uniform_attention_is_capacity_over_prefill_rate_at_any_length():
    step = replace(replica().step, pair_flop=0.0, pair_s=0.0, step_overhead_s=0.0, sequence_overhead_s=0.0)
    one = replica(block_tokens=1, step=step)
    rate = step.flop_per_s / step.token_flop
    contexts = np.array([1001.0, 8001.0, 64001.0])
    # P − 1 slots are held: the newest token's KV is written by the step that never came
    want = one.kv_capacity_tokens / rate * contexts / (contexts - 1)
    np.testing.assert_allclose(break_even_s(one, contexts), want, rtol=1e-9)


def test_windows_make_the_break_even_a_curve_that_rises_with_the_length():
    full = replica().groups[0]
    hybrid = replica(groups=(full, KvGroup("window", 16, 64, 4 * full.bytes_per_block)))
    curve = break_even_s(hybrid, np.array([512.0, 4096.0, 32768.0]))
    assert curve[0] < curve[1] < curve[2]
    plain = break_even_s(replica(), np.array([512.0, 32768.0]))
    assert plain[1] < 1.6 * plain[0], "only the attention's own work makes a longer one dearer to compute"


def test_what_other_sessions_share_is_not_computed_again():
    waits, contexts = np.full(2, 3.0), np.array([2000.0, 4000.0])
    alone, shared = gaps_of(replica(), waits, contexts), gaps_of(replica(), waits, contexts, 1500.0)
    assert (shared.recompute_s < 0.8 * alone.recompute_s).all()
    assert (shared.held_bytes == alone.held_bytes).all()


def week_with_waits(waits_s: list[float], rest: int = 0):
    """Sessions of two turns with a tool wait of 1,100 tokens each between them, and other requests beside."""
    rows, gaps = [], []
    for n, wait_s in enumerate(waits_s):
        own = [
            attempt(3600.0 + 20 * n + at, queue=0.0, ttft=0.2, e2e=5.0, session_id=f"s{n}", turn=turn)
            for turn, at in enumerate((0.0, 5.0 + wait_s))
        ]
        rows += own
        gaps.append(
            dict.fromkeys(TOOL_WAITS)
            | {"session_id": f"s{n}", "arrived_at": own[1]["arrived_at"], "kind": "tool", "wait_s": wait_s,
               "prior_context_tokens": 1100}
        )  # fmt: skip
    rows += [attempt(3600.0 + n, 3000, 400, queue=0.0, ttft=1.0, e2e=90.0) for n in range(rest)]
    return workload(rows, gaps)


def rows_of(week, where) -> dict[str, dict]:
    rows = policy_rows(week, demands_of_week(week, where.replica, where.now_replicas), where)
    return {row["policy"]: row for row in rows}


def test_a_week_with_room_for_all_holds_for_free():
    rows = rows_of(week_with_waits([30.0] * 50), site())
    assert set(rows) == {"lru", "drop", "keep"}
    assert rows["lru"]["is_today"]
    assert rows["lru"]["is_best"]
    assert {row["pool_full_ratio"] for row in rows.values()} == {0.0}
    assert all("holding is free here" in row["note"] for row in rows.values())
    assert rows["keep"]["held_byte_s"] == pytest.approx(50 * 30 * 69 * 16 * 131_072)
    assert rows["keep"]["held_gpu_s"] == 0
    assert rows["drop"]["saving_gpu_s"] < 0


def test_a_full_week_gets_a_time_and_its_saving_against_today():
    small = site(replica(capacity_tokens=100_000), now_replicas=1)
    waits_s = [0.5] * 60 + [500.0] * 40
    rows = rows_of(week_with_waits(waits_s, rest=2600), small)
    assert rows["ttl"]["is_best"]
    assert rows["ttl"]["ttl_s"] == 0.5
    assert 0.9 < rows["ttl"]["pool_full_ratio"] <= 1
    held = 1104 / 100_000 * rows["ttl"]["pool_full_ratio"] * 0.5 * 100
    assert rows["ttl"]["held_gpu_s"] == pytest.approx(held, rel=1e-6)
    assert rows["ttl"]["recompute_gpu_s"] == pytest.approx(rows["drop"]["recompute_gpu_s"] * 0.4)
    want = rows["lru"]["recompute_gpu_s"] - rows["ttl"]["held_gpu_s"] - rows["ttl"]["recompute_gpu_s"]
    assert rows["ttl"]["saving_gpu_s"] == pytest.approx(want)
    assert rows["lru"]["saving_gpu_s"] == 0
    assert sum(row["is_best"] for row in rows.values()) == 1
    uncached = rows_of(week_with_waits(waits_s, rest=2600), replace(small, replica=replace(
        small.replica, has_prefix_caching=False)))  # fmt: skip
    assert uncached["drop"]["is_today"]
    assert not week_rows_without_waits(small)


def week_rows_without_waits(where) -> list[dict]:
    week = workload([attempt(3600.0, queue=0.0, ttft=0.2, e2e=5.0)])
    return policy_rows(week, demands_of_week(week, where.replica, where.now_replicas), where)


GRID_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0, math.inf)
SPAN_S = 4000.0


def agents(rate: float, seed: int) -> TraceColumns:
    """More sessions of two turns than a replica serves; waits of 2 s or 600 s (exponential) between the turns."""
    rng = np.random.default_rng(seed)
    count = int(rate * SPAN_S)
    first_s = np.sort(rng.uniform(0, SPAN_S, count))
    is_short = rng.random(count) < SHORT_RATIO
    gap_s = np.where(is_short, rng.exponential(SHORT_S, count), rng.exponential(LONG_S, count))
    order = np.argsort(np.concatenate([first_s, first_s + gap_s + 5]), kind="stable")
    session, is_second = order % count, order >= count
    place = np.empty(2 * count, dtype=np.int32)
    place[order] = np.arange(2 * count)
    return TraceColumns(
        arrived_s=np.where(is_second, 0.0, first_s[session]),
        prompt_tokens=np.where(is_second, 900, 800).astype(np.int32),
        output_tokens=np.full(2 * count, 50, dtype=np.int32),
        session=session.astype(np.int32),
        parent=np.where(is_second, place[session], -1).astype(np.int32),
        delay_s=np.where(is_second, gap_s[session], 0.0),
        from_start=np.zeros(2 * count, dtype=np.bool_),
        is_tool_wait=is_second,
        shared_tokens=np.where(is_second, 850, 800).astype(np.int32),
    )


def test_replayed_on_a_full_cache_the_analytic_time_is_as_good_as_the_best_and_beats_keep_and_drop():
    """16,000 tokens of KV at 1,000 tokens/s of prefill: w* = 16 s. Cost: replica-seconds a turn that was served."""
    trace, costs = agents(1.2, 0), StepCosts(0.0, 0.0, 0.0, 0.02, 0.0, token_s=1e-3)
    engine = Settings(Pool(1000), 64, 256, caching=Caching.SESSION, max_num_queued_reqs=4)

    def cost(changed: Settings) -> float:
        result = replay(trace, changed, costs)
        end_s = result.arrived_s + result.e2e_s
        served = (result.status == Status.COMPLETED) & (end_s > SPAN_S / 4) & (end_s < SPAN_S)
        return SPAN_S * 0.75 / float(served.sum())

    grid = {ttl_s: cost(replace(engine, pin_s=ttl_s)) for ttl_s in GRID_S}
    best = min(grid.values())
    assert cost(replace(engine, pin_s=mixture_optimum_s())) < 1.05 * best
    assert grid[math.inf] > 1.05 * best
    assert cost(replace(engine, caching=Caching.OFF)) > 1.05 * best
    assert grid[0.0] > 1.05 * best
