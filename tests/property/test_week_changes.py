"""What moved between two weeks: one planted change stands on its own bar; equal weeks move nothing; bars add up."""

from __future__ import annotations

import dataclasses
from itertools import permutations
from typing import Any

import numpy as np
import polars as pl
import pytest
from planner_week import ATTEMPTS, MONDAY, TOOL_WAITS, WEEK, site

from transforms.planner.sizing.replica import Replica
from transforms.planner.weeks import week_taken
from transforms.planner.weeks.shapley import shapley
from transforms.planner.weeks.swapped import FACTORS
from transforms.planner.weeks.week_changes import change_rows
from transforms.planner.weeks.week_taken import TakenWeek, taken_week
from transforms.planner.weeks.week_traffic import as_other
from transforms.workload import MICROS, Workload
from transforms.workload_rows import make_workload

REQUESTS = 12_000
HOURS = np.array([1, 1, 1, 1, 1, 2, 4, 8, 12, 16, 16, 14, 12, 14, 16, 14, 12, 8, 6, 4, 3, 2, 1, 1], dtype=float)


def columns(seed: int, requests: int = REQUESTS) -> dict[str, Any]:
    """A week of three tenants with a daily rhythm: lengths, cached shares, a tool wait after every fourth request."""
    random = np.random.default_rng(seed)
    rhythm = np.concatenate([HOURS * (0.4 if day > 4 else 1.0) for day in range(7)])
    rhythm[57:59] = 4 * rhythm.sum()  # two hours of Wednesday hold most of it: what peaks there is no accident
    hour = random.choice(168, requests, p=rhythm / rhythm.sum())
    tenant = random.choice(3, requests, p=[0.5, 0.3, 0.2])
    prompt = random.lognormal(np.array([6.5, 7.5, 8.5])[tenant], 0.8).astype(np.int64) + 2
    return {
        "at_s": np.sort(hour * 3600 + random.uniform(0, 3600, requests)),
        "tenant": tenant,
        "prompt": prompt,
        "output": random.lognormal(np.array([7.0, 7.5, 6.5])[tenant], 0.7).astype(np.int64) + 2,
        "cached": (prompt * random.beta(2, 2, requests)).astype(np.int64),
        "wait_s": random.exponential(30.0, requests // 4),
    }


def week(found: dict[str, Any]) -> Workload:
    at = (np.round(found["at_s"] * MICROS)).astype("int64")
    base = pl.DataFrame({"prompt_tokens": found["prompt"]}).with_columns(
        pl.lit(MONDAY).cast(pl.Datetime("us", "UTC")).alias("arrived_at") + pl.Series(at).cast(pl.Duration("us")),
        pl.lit(WEEK).alias("week"),
        pl.lit("m").alias("model"),
        pl.Series("tenant", found["tenant"]).cast(pl.String),
        pl.Series("cached_prompt_tokens", found["cached"]),
        pl.Series("output_tokens", found["output"]),
        pl.int_range(pl.len(), dtype=pl.Int32).alias("turn"),
        pl.lit("s").alias("session_id"),
        pl.lit(value=False).alias("is_failed"),
    )
    attempts = base.with_columns(
        pl.lit(None, dtype).alias(name) for name, dtype in ATTEMPTS.items() if name not in base.columns
    ).select(*ATTEMPTS)
    after = attempts[1::4][: len(found["wait_s"])]
    waits = after.with_columns(
        pl.lit("tool").alias("kind"),
        pl.Series("wait_s", found["wait_s"][: after.height]),
        pl.col("prompt_tokens").alias("prior_context_tokens"),
    ).select(*TOOL_WAITS)
    return make_workload(attempts, waits, "chat", WEEK)


def more_often(found: dict[str, Any], factor: float) -> dict[str, Any]:
    """`factor` times as many of the same requests by the same rhythm: arrivals at evenly spread places among theirs."""
    count, held = len(found["at_s"]), round(factor * len(found["at_s"]))
    places = (np.arange(held) + 0.5) / held * count - 0.5
    rows = np.clip(np.round(places), 0, count - 1).astype(np.int64)
    far = places + np.random.default_rng(0).uniform(0, count / 200, held)  # not next to the row they repeat
    rows = rows[np.argsort(far, kind="stable")]
    waits = np.sort(found["wait_s"])[((np.arange(held // 4) + 0.5) / (held // 4) * (count // 4)).astype(np.int64)]
    return {name: found[name][rows] for name in ("tenant", "prompt", "output", "cached")} | {
        "at_s": np.interp(places, np.arange(count), found["at_s"]),
        "wait_s": np.random.default_rng(0).permutation(waits),
    }


def taken(found: dict[str, Any], one: Replica | None = None) -> TakenWeek:
    return taken_week(week(found), one or site().replica)


PARTS = {"kv_time": ("kv_time_byte_s", "kv_time_part_byte_s"), "gpus": ("demand_gpus", "demand_part_gpus")}


def parts(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, tuple[dict[str, float], float]]:
    """Measure → part of each factor and the residual, and the change they are parts of."""
    rows = change_rows(taken(earlier), taken(later), site())
    assert [row["mover"] for row in rows] == [*FACTORS, "residual"]
    return {
        measure: ({row["mover"]: row[part] for row in rows}, rows[0][name] - rows[0][f"previous_{name}"])
        for measure, (name, part) in PARTS.items()
    }


@pytest.mark.parametrize(
    ("factor", "measures"),
    [
        ("rate", ("kv_time", "gpus")),
        ("lengths", ("kv_time", "gpus")),
        ("cache_hits", ("kv_time", "gpus")),
        ("tool_waits", ("kv_time",)),
    ],
)
def test_one_planted_change_stands_on_its_own_bar(factor: str, measures: tuple[str, ...]) -> None:
    before = columns(1)
    after = {
        "rate": lambda: more_often(before, 1.3),
        "lengths": lambda: before | {"output": np.round(before["output"] * 1.2).astype(np.int64)},
        "cache_hits": lambda: before | {"cached": before["cached"] // 2},
        "tool_waits": lambda: before | {"wait_s": 2 * before["wait_s"]},
    }[factor]()
    moved = parts(before, after)
    for measure in measures:
        found, change = moved[measure]
        assert change > 0
        assert found[factor] >= 0.9 * change, (measure, found)
        assert abs(found["residual"]) <= 0.02 * change, (measure, found)
        assert sum(found.values()) == pytest.approx(change, rel=1e-9)


def test_weeks_of_more_requests_than_are_looked_at_ask_for_the_gpus_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    weeks = columns(1, 20_000), columns(2, 26_000)
    whole = change_rows(*(taken(week) for week in weeks), site())
    monkeypatch.setattr(week_taken, "MOST_ROWS", 3_000)
    thinned = change_rows(*(taken(week) for week in weeks), site())
    assert taken(weeks[1]).marks.prompt.size <= 3_000
    for name in ("demand_gpus", "previous_demand_gpus"):
        assert thinned[0][name] == pytest.approx(whole[0][name], rel=1e-9)
    change = whole[0]["demand_gpus"] - whole[0]["previous_demand_gpus"]
    assert sum(row["demand_part_gpus"] for row in thinned) == pytest.approx(change, rel=1e-9)
    assert thinned[0]["mover"] == "rate"
    assert thinned[0]["demand_part_gpus"] == pytest.approx(whole[0]["demand_part_gpus"], rel=0.1)


def test_equal_weeks_move_nothing() -> None:
    for found, change in parts(columns(3, 3_000), columns(3, 3_000)).values():
        assert change == 0
        assert all(part == pytest.approx(0, abs=1e-9) for part in found.values()), found


def test_unlike_weeks_add_up_with_a_small_residual() -> None:
    before, after = columns(4, 5_000), columns(5, 8_000)
    after["prompt"] = after["prompt"] * 2
    for found, change in parts(before, after).values():
        assert abs(found["residual"]) <= 0.02 * abs(change)
        assert sum(found.values()) == pytest.approx(change, rel=1e-9)


def test_a_new_tenant_is_mix() -> None:
    """Half of the requests leave for a tenant that was not there before, of the same lengths as the first one's."""
    before, after = columns(6, 6_000), columns(6, 6_000)
    before["tenant"] = np.where(before["tenant"] == 2, 1, before["tenant"])
    long = {"prompt": 20_000, "output": 800, "cached": 0}
    rows = np.arange(0, 6_000, 3)
    for name, value in long.items():
        after[name] = after[name].copy()
        after[name][rows] = value
    after["tenant"] = before["tenant"].copy()
    after["tenant"][rows] = 9
    found, change = parts(before, after)["kv_time"]
    assert found["mix"] == max(found.values())
    assert found["mix"] > 0.5 * change


def test_shapley_is_the_mean_over_all_orders() -> None:
    random = np.random.default_rng(7)
    values = {}

    def value(chosen: frozenset[str]) -> Any:
        return values.setdefault(chosen, random.normal(size=2))

    found = shapley(value, "abcd")
    orders = list(permutations("abcd"))
    for factor in "abcd":
        steps = [
            value(frozenset(order[: order.index(factor) + 1])) - value(frozenset(order[: order.index(factor)]))
            for order in orders
        ]
        assert found[factor] == pytest.approx(np.mean(steps, axis=0))


def test_a_week_moved_to_itself_is_itself() -> None:
    random = np.random.default_rng(8)
    values, kinds = random.integers(0, 50, 500).astype(float), random.integers(0, 3, 500)
    assert (as_other(values, kinds, values, kinds) == values).all()
    doubled = as_other(values, kinds, 2 * values, kinds)
    assert doubled == pytest.approx(2 * values)


def test_no_rows_no_parts() -> None:
    empty = {name: values[:0] for name, values in columns(9, 10).items()}
    assert change_rows(taken(empty), taken(columns(9, 100)), site()) == []
    small = dataclasses.replace(site().replica, max_model_len_tokens=1)
    assert change_rows(taken(columns(9, 100), small), taken(columns(9, 100), small), site(small)) == []
