"""KV·time by tenant and phase, and the shared reading against counting sharers at every instant."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import TOKEN_BYTES, attempt, random_rows, replica, workload

from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time
from transforms.planner.residency.kv_time_table import kv_time_rows
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.shared_blocks import shared_out_by_blocks
from transforms.planner.residency.timeline import Timeline, observed_timeline
from transforms.workload import Workload

REPLICA = replica()
BLOCK = 100


def observed(work: Workload) -> Timeline:
    pace = slo_pace(REPLICA)
    return observed_timeline(work, REPLICA, pace, np.full(work.rows, pace.token_s))


def table(work: Workload, replicas: int = 1, **changes: Any) -> pl.DataFrame:
    return kv_time_rows(work, observed(work), replica(**changes), replicas)


def hashed(at_s: float, ids: list[int], output: int = 0, seconds: float = 10.0, **more: Any) -> dict[str, Any]:
    """An attempt of whole blocks that holds its prompt from its arrival on."""
    times = {"queue": 0.0, "ttft": 0.0, "e2e": seconds}
    return attempt(at_s, BLOCK * len(ids), output, prefix_block_tokens=BLOCK, prefix_block_ids=ids, **times, **more)


def test_closed_form_of_one_request() -> None:
    rows = table(workload([attempt(0, 8192, 2048, queue=0.0, ttft=0.0, e2e=40.96)]))
    decode = rows.filter(pl.col("phase") == "decode")
    assert decode["kv_time_byte_s"].item() == pytest.approx(46.08 * (1 << 30))
    assert decode["kv_block_time_byte_s"].item() > decode["kv_time_byte_s"].item()


def test_tenants_outcomes_and_the_unknown_stand_apart() -> None:
    rows = [
        attempt(0, 100, 10, tenant="a", e2e=1.0),
        attempt(1, 100, 10, tenant="b", e2e=1.0),
        attempt(2, 100, 10, tenant="b", e2e=1.0, is_failed=True),
        attempt(3, None, 10, tenant="b"),
        attempt(4, None, None, tenant="c", is_failed=True),
        attempt(-5, 100, 10, tenant="a", e2e=60.0),
    ]
    decode = table(workload(rows)).filter(pl.col("phase") == "decode")
    counts = {
        (tenant, failed): (known, unknown)
        for tenant, failed, known, unknown in decode.select(
            "tenant", "is_failed", "attempts_requests", "unknown_requests"
        ).iter_rows()
    }
    assert counts == {("a", False): (1, 0), ("b", False): (1, 1), ("b", True): (1, 0), ("c", True): (0, 1)}
    means = decode.filter(pl.col("tenant") == "c")["kv_time_mean_byte_s"].to_list()
    assert means == [None]


def test_two_who_share_everything_pay_half_each_while_both_are_there() -> None:
    work = workload([hashed(0, [1, 2]), hashed(5, [1, 2])])
    rows = table(work).filter(pl.col("phase") == "decode")
    alone = 2 * BLOCK * TOKEN_BYTES * 10
    assert rows["kv_time_byte_s"].item() == pytest.approx(2 * alone)
    assert rows["kv_shared_time_byte_s"].item() == pytest.approx(1.5 * alone)
    assert rows["shared_reading"].to_list() == ["exact"]
    assert table(work, replicas=3)["shared_reading"].drop_nulls().unique().to_list() == ["lower bound"]


def test_who_shares_nothing_pays_the_linear_kv_time() -> None:
    rows = []
    for number, row in enumerate(random_rows(5, 60)):
        if row["prompt_tokens"] and row["output_tokens"] and not row["is_failed"]:
            own = [1000 * number + block for block in range(row["prompt_tokens"] // 16)]
            rows.append(row | {"prefix_block_tokens": 16, "prefix_block_ids": own})
    work = workload(rows)
    sums = table(work).group_by("phase").agg(pl.col("kv_time_byte_s", "kv_shared_time_byte_s").sum())
    for _phase, linear, shared in sums.filter(pl.col("kv_shared_time_byte_s") > 0).iter_rows():
        assert shared == pytest.approx(linear, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 20), st.lists(st.integers(0, 5), max_size=4, unique=True)),
        min_size=1,
        max_size=8,
    )
)
def test_shares_are_counted_at_every_instant(rows: list[tuple[int, int, list[int]]]) -> None:
    """Whole-second holds of whole blocks: each second, a block's bytes are split among those that reference it."""
    work = workload([hashed(at, ids or [9], seconds=float(length)) for at, length, ids in sorted(rows)])
    timeline = observed(work)
    ordered = sorted(rows)
    expected = np.zeros(len(rows))
    for second in range(45):
        holders: dict[int, list[int]] = {}
        for row, (at, length, ids) in enumerate(ordered):
            if at <= second < at + length:
                for block in ids or [9]:
                    holders.setdefault(block, []).append(row)
        for sharing in holders.values():
            expected[sharing] += BLOCK / len(sharing)
    held = decode_kv_time(timeline, REPLICA).linear_byte_s + prefill_kv_time(timeline, REPLICA).linear_byte_s
    out = shared_out_by_blocks(timeline, work.labels)
    paid = held / TOKEN_BYTES - out.prefill_token_s - out.decode_token_s
    assert paid == pytest.approx(expected, abs=1e-6)


def test_without_hashes_the_cached_prefix_gives_a_lower_bound() -> None:
    work = workload([attempt(0, 1000, 1, queue=0.0, ttft=0.0, e2e=10.0, cached_prompt_tokens=600)])
    decode = table(work).filter(pl.col("phase") == "decode")
    assert decode["kv_shared_time_byte_s"].item() == pytest.approx(TOKEN_BYTES * (1000.5 - 600) * 10)
    assert decode["shared_reading"].item() == "lower bound"


def test_without_prefix_caching_nothing_is_shared_and_without_facts_nothing_is_said() -> None:
    work = workload([hashed(0, [1, 2]), hashed(5, [1, 2])])
    rows = table(work, has_prefix_caching=False)
    assert (rows["kv_shared_time_byte_s"] == rows["kv_time_byte_s"]).all()
    silent = table(workload([attempt(0, 1000, 10, e2e=5.0)]))
    assert silent["kv_shared_time_byte_s"].null_count() == silent.height
    assert silent["shared_reading"].null_count() == silent.height
