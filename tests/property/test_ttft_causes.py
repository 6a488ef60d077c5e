"""Why the P95 time to first token moved: five weeks with one planted cause each name that cause first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planner_week import attempt, replica, site, workload

from transforms.planner.weeks.ttft_causes import causes_s, ttft_rows
from transforms.planner.weeks.week_taken import Hour, Marks, taken_week

CALM: dict[str, Any] = {"rate": 3.0, "prompt": 1500.0, "output": 150.0, "cached": 0.5, "is_burst": False}


def hour(seed: int, **changes: Any) -> Hour:
    """An hour with its lead: Poisson arrivals, half of them in bursts of 8 s where asked; log-normal lengths."""
    asked = CALM | changes
    random = np.random.default_rng(seed)
    count = int(asked["rate"] * 4200)
    at_s = random.uniform(0, 4200, count)
    if asked["is_burst"]:
        at_s = np.where(random.random(count) < 0.5, np.floor(at_s / 300) * 300 + random.uniform(0, 8, count), at_s)
    prompt = np.maximum(random.lognormal(np.log(asked["prompt"]), 0.5, count), 2).round()
    output = np.maximum(random.lognormal(np.log(asked["output"]), 0.6, count), 2).round()
    cached = np.clip(2 * asked["cached"] * random.beta(8, 8, count), 0, 0.95)
    return Hour(np.sort(at_s), Marks(prompt, output, cached))


@pytest.mark.parametrize(
    ("cause", "pool_tokens", "usual", "planted"),
    [
        ("arrivals", 448_000, {}, {"is_burst": True}),
        ("lengths", 448_000, {}, {"prompt": 4000.0}),
        ("cache_hits", 448_000, {"prompt": 8000.0, "rate": 1.5, "cached": 0.8}, {"cached": 0.4}),
        ("kv_pressure", 40_000, {"prompt": 6000.0, "output": 40.0, "cached": 0.0, "rate": 2.0}, {"output": 80.0}),
        ("preemption", 60_000, {"prompt": 100.0, "output": 300.0, "cached": 0.0, "rate": 1.0}, {"output": 3000.0}),
    ],
)
def test_a_planted_cause_is_named_first(
    cause: str, pool_tokens: int, usual: dict[str, Any], planted: dict[str, Any]
) -> None:
    hours = hour(1, **usual), hour(2, **(usual | planted))
    found = causes_s(hours, replica(pool_tokens), 1)
    assert next(iter(found)) == cause, found
    assert found[cause] > 2 * max(abs(part) for name, part in found.items() if name != cause), found


def test_equal_hours_have_no_cause() -> None:
    assert all(part == 0 for part in causes_s((hour(1), hour(1)), replica(), 1).values())


def week(ttft_s: float, queue_s: float | None) -> Any:
    rows = [
        attempt(100.0 + 3 * n, 1500, 150, ttft=ttft_s * (1 + n % 7 / 10), queue=queue_s, e2e=20.0) for n in range(400)
    ]
    return taken_week(workload(rows), replica())


def test_a_week_is_explained_only_where_its_logged_p95_moved() -> None:
    assert ttft_rows(week(1.0, 0.1), week(1.1, 0.1), site()) == []
    assert ttft_rows(week(1.0, 0.1), week(2.0, 0.1), site(now_replicas=0)) == []
    rows = ttft_rows(week(1.0, 0.1), week(2.0, 0.6), site())
    split = {row["cause"]: row["part_s"] for row in rows if row["kind"] == "split"}
    assert split["queue"] == pytest.approx(0.5)
    assert split["prefill"] == pytest.approx(1.6 * 1.0 - 0.5)
    assert [row["cause"] for row in rows if row["kind"] == "cause"] != []
    assert all(row["ttft_p95_s"] == pytest.approx(2 * row["previous_ttft_p95_s"]) for row in rows)
    assert [row["kind"] for row in ttft_rows(week(1.0, None), week(2.0, None), site())] == ["cause"] * 5
