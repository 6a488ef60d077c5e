"""Workload and timeline: what the log says wins, what it lacks is modelled and marked, what is unknown is counted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from planner_week import MONDAY, TOOL_WAITS, attempt, replica, workload

from transforms.errors import ConfigError
from transforms.planner.residency.pace import prefill_times_s, slo_pace
from transforms.planner.residency.timeline import Timeline, observed_timeline, slo_timeline
from transforms.workload import Workload, week_start

REPLICA = replica()
PACE = slo_pace(REPLICA)
TODAY_S = 0.01


def observed(work: Workload) -> Timeline:
    return observed_timeline(work, REPLICA, PACE, np.full(work.rows, TODAY_S))


def seconds(timeline: Timeline) -> list[float]:
    return [float(values[0]) / 1e6 for values in (timeline.prefill_us, timeline.first_us, timeline.end_us)]


def own_prefill_s(prompt: float, cached: float = 0.0) -> float:
    return float(prefill_times_s(REPLICA, PACE, np.array([prompt]), np.array([cached]))[0])


def test_logged_times_are_taken_as_they_are() -> None:
    timeline = observed(workload([attempt(10, 1000, 100, queue=1.0, ttft=1.5, e2e=4.0, cached_prompt_tokens=600)]))
    assert seconds(timeline) == [11.0, 11.5, 14.0]
    assert timeline.cached_tokens[0] == 600
    assert not timeline.is_modelled[0]


def test_unknown_queue_counts_as_none() -> None:
    timeline = observed(workload([attempt(10, 1000, 100, ttft=1.5, e2e=4.0)]))
    assert seconds(timeline) == [10.0, 11.5, 14.0]


def test_missing_first_token_is_modelled_inside_the_logged_time() -> None:
    prefill_s = own_prefill_s(1000)
    timeline = observed(workload([attempt(10, 1000, 100, e2e=4.0)]))
    assert seconds(timeline) == pytest.approx([10.0, 10 + prefill_s, 14.0], abs=1e-6)
    assert timeline.is_modelled[0]
    short = observed(workload([attempt(10, 100_000, 100, e2e=0.001)]))
    assert seconds(short) == pytest.approx([10.0, 10.001, 10.001])


def test_no_times_at_all_are_modelled_at_the_pace_of_today() -> None:
    timeline = observed(workload([attempt(10, 1000, 101)]))
    first = 10 + own_prefill_s(1000)
    assert seconds(timeline) == pytest.approx([10.0, first, first + 100 * TODAY_S], abs=2e-6)
    assert timeline.is_modelled[0]


def test_a_failed_attempt_holds_what_its_time_allowed() -> None:
    prefill_s = own_prefill_s(50_000)
    timeline = observed(workload([attempt(0, 50_000, None, e2e=prefill_s / 2, is_failed=True)]))
    assert timeline.prompt_tokens[0] == pytest.approx(25_000, rel=1e-3)
    assert timeline.output_tokens[0] == 0
    waited = observed(workload([attempt(0, 50_000, None, e2e=60.0, is_failed=True)]))
    assert waited.prompt_tokens[0] == 50_000
    assert seconds(waited)[2] == 60.0


def test_at_slo_pace_logged_times_do_not_matter() -> None:
    slow = slo_timeline(workload([attempt(10, 1000, 101, queue=30.0, ttft=60.0, e2e=600.0)]), REPLICA, PACE)
    bare = slo_timeline(workload([attempt(10, 1000, 101)]), REPLICA, PACE)
    first = 10 + own_prefill_s(1000)
    assert seconds(slow) == seconds(bare) == pytest.approx([10, first, first + 100 * PACE.token_s], abs=2e-6)


def test_slo_pace_leaves_out_what_the_engine_refuses_and_cuts_outputs() -> None:
    limited = replica(max_model_len_tokens=1000)
    rows = [attempt(0, 1000, 5), attempt(1, 999, 50), attempt(2, 900, 500)]
    timeline = slo_timeline(workload(rows), limited, PACE)
    assert timeline.prompt_tokens.tolist() == [999, 900]
    assert timeline.output_tokens.tolist() == [1, 100]


def test_unknown_lengths_are_left_out_and_counted() -> None:
    rows = [
        attempt(0, None, 10),
        attempt(1, 10, None),
        attempt(2, 10, None, is_failed=True, e2e=1.0),
        attempt(3, None, None, is_failed=True, tenant="a"),
        attempt(4, 10, 10),
    ]
    work = workload(rows)
    assert work.rows == 2
    assert work.attempts_requests == 5
    unknown = work.unknown
    assert (unknown.prompt_requests, unknown.output_requests, unknown.failed_output_requests) == (2, 1, 1)
    assert work.left_out["unknown_requests"].sum() == 3


def test_a_cached_prefix_never_covers_the_last_token() -> None:
    work = workload([attempt(0, 100, 10, cached_prompt_tokens=100), attempt(1, 100, 10)])
    assert work.cached_tokens.tolist() == [99, 0]
    assert work.has_cached_tokens


def test_what_still_ran_at_the_weeks_start_is_carried_in() -> None:
    rows = [attempt(-10, 100, 10, e2e=15.0), attempt(-10, 100, 10, e2e=5.0), attempt(5, 100, 10, session_id="s")]
    work = workload(rows)
    assert work.arrived_us.tolist() == [-10_000_000, 5_000_000]
    assert work.is_carried.tolist() == [True, False]
    assert work.attempts_requests == 1
    assert work.sessions == 1


def wait(at_s: float, **more: Any) -> dict[str, Any]:
    row = {"arrived_at": MONDAY + timedelta(seconds=at_s), "kind": "tool", "wait_s": 4.0, "prior_context_tokens": 900}
    return dict.fromkeys(TOOL_WAITS) | row | more


def test_only_tool_waits_of_known_length_are_taken() -> None:
    rows = [attempt(20, session_id="s", turn=2, model="m", tenant="t")]
    waits = [
        wait(20, session_id="s", model="m", tenant="t"),
        wait(30, session_id="s", kind="user"),
        wait(40, session_id="s", wait_s=None),
    ]
    taken = workload(rows, waits).tool_waits
    assert taken.start_us.tolist() == [16_000_000]
    assert taken.end_us.tolist() == [20_000_000]
    assert taken.tokens.tolist() == [900]
    assert taken.labels.rows() == [("m", "t", "s")]
    assert workload(rows, waits).unknown.tool_waits == 1


def test_columns_are_frozen() -> None:
    work = workload([attempt(0)])
    with pytest.raises(ValueError, match="read-only"):
        work.prompt_tokens[0] = 5


def test_weeks_are_iso_weeks() -> None:
    assert week_start("2026-W47") == MONDAY
    with pytest.raises(ConfigError, match="write it like 2026-W47"):
        week_start("2026-47")
