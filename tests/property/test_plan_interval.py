"""The interval of whole plans: it holds the count, patience never raises an end, more traffic never lowers one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import attempt, replica, site, workload

from transforms.planner.sizing.demands_of_week import demands_of_week
from transforms.planner.sizing.plan_replicas import replica_rows
from transforms.planner.sizing.replica import Replica

Rows = list[dict[str, Any]]


def week(seed: int, rate_per_s: float) -> Rows:
    """A busy quarter of an hour on each of six days, its rate and lengths different from day to day."""
    random = np.random.default_rng(seed)
    rows: Rows = []
    for day in range(6):
        count = int(rate_per_s * 900 * random.lognormal(0.0, 0.1)) + 1
        arrivals = np.sort(random.uniform(0, 900, count)) + 86_400 * day + 36_000
        lengths = random.lognormal(7.0, 0.8, count)
        rows += [attempt(float(at), int(p) + 1, 200) for at, p in zip(arrivals, lengths, strict=True)]
    return rows


def counted(rows: Rows, one: Replica) -> tuple[int | None, int, int | None]:
    work, where = workload(rows), site(one)
    row = next(r for r in replica_rows(work, demands_of_week(work, one, 2), where) if r["is_binding"])
    return row["low_gpus"], row["needed_gpus"], row["high_gpus"]


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6), rate=st.sampled_from([0.3, 2.0, 10.0]), ttft_s=st.sampled_from([0.3, 0.6, 1.5]))
def test_patience_and_traffic(seed: int, rate: float, ttft_s: float) -> None:
    rows = week(seed, rate)
    low, needed, high = counted(rows, replica(ttft_p95_s=ttft_s))
    assert low is not None
    assert high is not None
    assert low <= needed <= high
    patient = counted(rows, replica(ttft_p95_s=4 * ttft_s))
    assert (patient[0] or 0) <= low
    assert (patient[2] or 0) <= high
    doubled = [row | {"arrived_at": row["arrived_at"] + timedelta(microseconds=n)} for row in rows for n in range(2)]
    twice = counted(doubled, replica(ttft_p95_s=ttft_s))
    assert (twice[0] or 0) >= low
    assert (twice[2] or 0) >= high


def test_little_traffic_is_little_doubt() -> None:
    """One replica carries it many times over: a whole number that jumps from 1 to 2 is no spread between days."""
    low, needed, high = counted(week(1, 0.3), replica())
    assert (low, needed, high) == (2, 2, 2)


def test_a_promise_nobody_keeps_has_no_interval() -> None:
    low, _needed, high = counted(week(1, 2.0), replica(ttft_p95_s=0.001))
    assert (low, high) == (None, None)
