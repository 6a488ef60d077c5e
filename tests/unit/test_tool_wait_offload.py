"""Offloaded tool waits share the host link; what other sessions keep alive is not computed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_week import TOKEN_BYTES, TOOL_WAITS, attempt, replica, site, workload

from transforms.planner.replay.replay_types import Pool
from transforms.planner.sizing.demands_of_week import demands_of_week
from transforms.planner.sizing.plan_replicas import Site
from transforms.planner.tool_waits.host_link import copies_of, finished_s
from transforms.planner.tool_waits.policy_rows import policy_rows
from transforms.planner.tool_waits.shared_prefix import shared_prefix_tokens
from transforms.workload import Workload

UNIT_S = 16 * TOKEN_BYTES / 64e9
"""A block of 16 tokens on a link of 64 GB/s."""


def linked(capacity_tokens: int = 100_000) -> Site:
    pool = Pool(capacity_tokens // 16, host_s_per_unit=UNIT_S)
    return site(replica(capacity_tokens=capacity_tokens, pool=pool), now_replicas=1)


def week(waits_s: list[float], rest: int = 0, every_s: float = 20.0, **first: object) -> Workload:
    """Sessions of two turns with a tool wait of 1,100 tokens between them, and other requests beside."""
    rows, gaps = [], []
    for n, wait_s in enumerate(waits_s):
        at_s = 3600.0 + every_s * n
        own = [
            attempt(at_s, queue=0.0, ttft=0.2, e2e=5.0, session_id=f"s{n}", turn=1, tenant="a", **first),
            attempt(at_s + 5 + wait_s, queue=0.0, ttft=0.2, e2e=5.0, session_id=f"s{n}", turn=2, tenant="a"),
        ]
        rows += own
        gaps.append(
            dict.fromkeys(TOOL_WAITS)
            | {"session_id": f"s{n}", "tenant": "a", "arrived_at": own[1]["arrived_at"], "kind": "tool",
               "wait_s": wait_s, "prior_context_tokens": 1100}
        )  # fmt: skip
    rows += [attempt(3600.0 + n, 3000, 400, queue=0.0, ttft=1.0, e2e=90.0) for n in range(rest)]
    return workload(rows, gaps)


def rows_of(traffic: Workload, where: Site) -> dict[str, dict]:
    rows = policy_rows(traffic, demands_of_week(traffic, where.replica, where.now_replicas), where)
    return {row["policy"]: row for row in rows}


def test_copies_queue_on_a_link_first_come_first_served() -> None:
    rng = np.random.default_rng(4)
    asked, service = np.sort(rng.uniform(0, 50, 200)), rng.exponential(0.25, 200)
    free_s, want = 0.0, []
    for at_s, took_s in zip(asked, service, strict=True):
        free_s = max(free_s, at_s) + took_s
        want.append(free_s)
    np.testing.assert_allclose(finished_s(asked, service), want)
    apart = copies_of(week([30.0] * 3).tool_waits, linked().replica.pool, 1)
    np.testing.assert_allclose(apart.out_s, 69 * UNIT_S, err_msg="1,099 slots are 69 blocks")
    np.testing.assert_allclose(apart.delay_s, apart.back_s)
    together = copies_of(week([30.0] * 3, every_s=0.0).tool_waits, linked().replica.pool, 1)
    np.testing.assert_allclose(np.sort(together.delay_s), 69 * UNIT_S * np.arange(1, 4), rtol=1e-4)
    spread = copies_of(week([30.0] * 3, every_s=0.0).tool_waits, linked().replica.pool, 3)
    np.testing.assert_allclose(spread.delay_s, 69 * UNIT_S, rtol=1e-4)


def test_offloading_holds_for_the_copies_and_computes_nothing_anew() -> None:
    rows = rows_of(week([500.0] * 100, rest=2600), linked())
    offload, keep = rows["offload"], rows["keep"]
    assert offload["recompute_gpu_s"] == 0
    assert offload["held_byte_s"] == pytest.approx(keep["held_byte_s"] * 2 * 69 * UNIT_S / 500, rel=1e-3)
    assert offload["held_gpu_s"] == pytest.approx(keep["held_gpu_s"] * 2 * 69 * UNIT_S / 500, rel=1e-3)
    assert offload["is_best"]
    assert "GiB of host memory" in offload["note"]
    assert "offload" not in rows_of(week([500.0] * 3), site()), "a GPU whose link to the host nobody says"


def test_what_first_turns_find_cached_others_keep_alive() -> None:
    alone, shared = week([500.0] * 20, rest=2600), week([500.0] * 20, rest=2600, cached_prompt_tokens=800)
    assert shared_prefix_tokens(alone).tolist() == [0.0] * 20
    assert shared_prefix_tokens(shared).tolist() == [800.0] * 20
    before, after = rows_of(alone, linked()), rows_of(shared, linked())
    assert after["lru"]["recompute_gpu_s"] < 0.5 * before["lru"]["recompute_gpu_s"]
    assert after["drop"]["recompute_gpu_s"] == before["drop"]["recompute_gpu_s"], "nothing is cached at all"


def test_leading_blocks_that_two_sessions_have_others_keep_alive() -> None:
    lists = {"s0": [1, 2, 3, 4], "s1": [1, 2, 9], "s2": [7, 2]}
    rows = [
        attempt(10.0 + 10.0 * n, 1000, e2e=1.0, session_id=name, turn=1, prefix_block_tokens=64, prefix_block_ids=ids)
        for n, (name, ids) in enumerate(lists.items())
    ]
    gaps = [
        dict.fromkeys(TOOL_WAITS)
        | {"session_id": name, "arrived_at": row["arrived_at"], "kind": "tool", "wait_s": 1.0,
           "prior_context_tokens": 900}
        for name, row in zip(lists, rows, strict=True)
    ]  # fmt: skip
    assert shared_prefix_tokens(workload(rows, gaps)).tolist() == [128.0, 128.0, 0.0]


def test_a_pool_of_windows_moves_no_more_than_it_holds() -> None:
    waits = week([30.0]).tool_waits
    pool = replace(linked().replica.pool, block_tokens=(16, 16), max_blocks=(1 << 30, 4), units_per_block=(1, 2))
    assert copies_of(waits, pool, 1).back_s[0] == pytest.approx((69 + 2 * 4) * UNIT_S)
