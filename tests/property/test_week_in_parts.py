"""A week looked at in parts comes to what it comes to as a whole, whatever the size of the parts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import MONDAY, TOOL_WAITS, attempt, attempts_frame, random_rows, replica, site, workload
from polars.testing import assert_frame_equal

from transforms import attempts
from transforms.attempts import FrameRows
from transforms.planner.residency import holders
from transforms.planner.sizing.latency_replay import Replays
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.planner.sizing.replay_week import replay_week, stretches
from transforms.planner.sizing.window_survey import LONGEST_WARM_UP_S
from transforms.planner.steps.hardware import ASSUMED
from transforms.workload import Workload
from transforms.workload_rows import make_workload

MOST = attempts.PART_ROWS


def named_rows(seed: int, count: int, *, has_blocks: bool = False) -> list[dict[str, Any]]:
    """Attempts with every kind of gap, of some tenants and models, in and out of sessions."""
    random = np.random.default_rng(seed)
    rows = sorted(random_rows(seed, count), key=lambda row: row["arrived_at"])
    for turn, row in enumerate(rows):
        session = int(random.integers(0, 8))
        row |= {
            "session_id": f"s{session}" if session else None,
            "turn": turn,
            "tenant": [None, "a", "b"][int(random.integers(0, 3))],
            "model": ["m", "n"][int(random.integers(0, 2))],
        }
        if has_blocks and random.random() < 0.4:
            row |= {"prefix_block_tokens": 64, "prefix_block_ids": [1, 2, *range(9, 9 + int(random.integers(0, 3)))]}
    return rows


def waits(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A tool wait before every third turn of a session."""
    found = [
        {name: row.get(name) for name in TOOL_WAITS} | {"kind": "tool", "wait_s": 4.0, "prior_context_tokens": 900}
        for row in rows[::3]
        if row["session_id"] and row["arrived_at"] > MONDAY + timedelta(seconds=10)
    ]
    return pl.DataFrame(found, schema=TOOL_WAITS, orient="row")


def made(rows: list[dict[str, Any]], batch_rows: int | None) -> Workload:
    logged = FrameRows(attempts_frame(rows), batch_rows)
    return make_workload(logged, waits(rows), "chat", "2026-W47")


def planned(rows: list[dict[str, Any]], part_rows: int, batch_rows: int | None) -> dict[str, pl.DataFrame]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "PART_ROWS", part_rows)
        patch.setattr(holders, "PART_ROWS", part_rows)
        return plan_deployment(made(rows, batch_rows), site(replica(max_model_len_tokens=4000)), ASSUMED, "0" * 12)


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000), part_rows=st.integers(1, 60), has_blocks=st.booleans())
def test_the_plan_does_not_hang_on_the_parts(seed: int, part_rows: int, *, has_blocks: bool) -> None:
    rows = named_rows(seed, 80, has_blocks=has_blocks)
    whole, parts = planned(rows, MOST, None), planned(rows, part_rows, max(1, part_rows // 2))
    for name, table in whole.items():
        assert_frame_equal(parts[name], table, rel_tol=1e-12, abs_tol=1e-6)


def test_rows_between_two_instants_are_those_of_the_week() -> None:
    work = workload(named_rows(3, 200))
    every, some = work.rows_to_replay(), work.rows_to_replay(low_us=60e6, high_us=1800e6)
    offset = (every["arrived_at"] - MONDAY).dt.total_microseconds()
    assert 0 < len(some) < len(every)
    assert some.equals(every.filter((offset >= 60e6) & (offset < 1800e6)))


def busy_hours(per_hour: list[int]) -> list[dict[str, Any]]:
    random = np.random.default_rng(4)
    arrivals = [(3600.0 * hour + at) for hour, n in enumerate(per_hour) for at in np.sort(random.uniform(0, 3600, n))]
    return [attempt(at, int(random.integers(100, 4000)), int(random.integers(1, 300))) for at in arrivals]


def test_the_windows_that_decide_a_large_week_are_replayed_as_those_of_the_whole() -> None:
    work, one = workload(busy_hours([250, 300, 900, 220, 0, 1200, 210, 205, 400, 800, 230])), replica()
    whole, part = replay_week(work, one, 1), replay_week(work, one, 1, whole_requests=1000)
    assert whole is not None
    assert part is not None
    assert whole.is_whole > part.is_whole
    assert part.trace.columns.rows < whole.trace.columns.rows
    assert part.survey.full.tolist() == whole.survey.full.tolist()
    chosen = whole.survey.deciding(3)
    assert part.survey.deciding(3) == chosen
    found = [stretches(week, whole.survey.busiest()) for week in (whole, part)]
    assert found[0] == found[1]
    for stretch in found[0]:
        results = [Replays(week, [stretch]).result(stretch, 1) for week in (whole, part)]
        assert np.allclose(results[0][0].e2e_s, results[1][0].e2e_s, rtol=1e-9)
        assert (results[0][1] == results[1][1]).all()


def test_a_large_week_of_sessions_is_replayed_from_long_before() -> None:
    turns = [{**row, "session_id": f"s{n % 50}", "turn": n} for n, row in enumerate(busy_hours([300] * 12))]
    week = replay_week(workload(turns), replica(), 1, whole_requests=1000)
    assert week is not None
    assert week.warm_s == LONGEST_WARM_UP_S
