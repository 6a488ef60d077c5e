"""Little's law in bytes: what the sweep integrates is what the requests' own closed forms add up to, to 1e-9.

The identity is held for the whole span and for every group of a few neighbouring attempts, each group laid into a
window of its own that is empty at both ends: in a sum over thousands of requests a microsecond would go unseen.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_week import (
    MONDAY,
    TOOL_WAITS,
    attempt,
    attempts_frame,
    azure_rows,
    random_rows,
    replica,
    spend_log_rows,
    workload,
)

from flows.home import Home
from flows.progress import progress
from flows.sample import SampleSettings, write_sample
from transforms.planner.residency import kv_time
from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time, tool_wait_kv_time
from transforms.planner.residency.occupancy import request_residency, tool_wait_residency
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.timeline import Timeline, observed_timeline, slo_timeline
from transforms.workload import WEEK_S, Workload
from transforms.workload_rows import make_workload

REPLICA = replica()
EXACT = 1e-9
GROUP = 8
INSTANTS = ("prefill_us", "first_us", "end_us")


@dataclasses.dataclass(frozen=True)
class Laid:
    """A timeline whose groups of neighbours each lie in a window of their own."""

    timeline: Timeline
    group: np.ndarray
    window_s: int

    @property
    def groups(self) -> int:
        return int(self.group[-1]) + 1

    def held(self) -> np.ndarray:
        """Closed-form KV·time of each group, token-linear, byte·s."""
        parts = (prefill_kv_time(self.timeline, REPLICA), decode_kv_time(self.timeline, REPLICA))
        return np.bincount(self.group, sum(part.linear_byte_s for part in parts))

    def gaps(self, swept: Timeline | None = None) -> np.ndarray:
        """Relative difference of each group between the sweep of `swept` (default: this timeline) and `held`."""
        residency = request_residency(swept or self.timeline, REPLICA, self.groups * self.window_s)
        means = sum(phase.linear_bytes for phase in residency.values())
        return np.abs(means.reshape(self.groups, self.window_s).sum(axis=1) / self.held() - 1)


def observed(work: Workload) -> Timeline:
    pace = slo_pace(REPLICA)
    return observed_timeline(work, REPLICA, pace, np.full(work.rows, pace.token_s))


def lay_apart(timeline: Timeline, size: int = GROUP) -> Laid:
    """`timeline` with every `size` neighbours moved, by whole seconds, into a window that is empty at both ends."""
    group = np.arange(len(timeline.end_us)) // size
    starts = np.arange(0, len(group), size)
    first_s = np.minimum.reduceat(timeline.prefill_us, starts) // 1_000_000 - 1
    last_s = np.maximum.reduceat(timeline.end_us, starts) // 1_000_000 + 2
    window_s = int((last_s - first_s).max())
    moved_us = (group * window_s - first_s[group]) * 1_000_000
    instants = {name: getattr(timeline, name) + moved_us for name in INSTANTS}
    return Laid(dataclasses.replace(timeline, **instants), group, window_s)


def with_end(timeline: Timeline, row: int, end_us: int) -> Timeline:
    ends = timeline.end_us.copy()
    ends[row] = end_us
    return dataclasses.replace(timeline, end_us=ends)


def without(timeline: Timeline, row: int) -> Timeline:
    return Timeline(**{name: np.delete(values, row) for name, values in vars(timeline).items()})


MUTATIONS: dict[str, Callable[[Timeline, int], Timeline]] = {
    "an end event is lost": lambda line, row: with_end(line, row, 1 << 60),
    "a request is lost": without,
    "an end comes 1 µs late": lambda line, row: with_end(line, row, int(line.end_us[row]) + 1),
    "an end comes 1 µs early": lambda line, row: with_end(line, row, int(line.end_us[row]) - 1),
}


def assert_little(timeline: Timeline) -> None:
    laid = lay_apart(timeline)
    assert laid.gaps().max() < EXACT
    whole = lay_apart(timeline, len(timeline.end_us))
    assert whole.gaps().max() < EXACT
    # The check is worth something: each of these, done to the largest request of a group, must fail it.
    decodes = laid.timeline.end_us > laid.timeline.first_us + 1
    held = np.where(decodes, laid.timeline.prompt_tokens + laid.timeline.output_tokens, 0)
    for target in np.linspace(0, laid.groups - 1, 3).astype(int):
        members = np.flatnonzero(laid.group == target)
        row = int(members[np.argmax(held[members])])
        if not decodes[row]:
            continue
        for name, mutate in MUTATIONS.items():
            assert laid.gaps(mutate(laid.timeline, row))[target] > EXACT, name


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 200))
def test_random_loads(seed: int, count: int) -> None:
    assert_little(observed(workload(random_rows(seed, count))))


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.tuples(st.integers(64, 200_000), st.integers(0, 20_000)),  # fewer show the sweep's quantum of slopes
    at_us=st.integers(0, 10**7),
    phases_us=st.tuples(st.integers(0, 10**6), st.integers(1000, 10**7), st.integers(1000, 5 * 10**8)),
)
def test_one_request_shows_every_microsecond(
    tokens: tuple[int, int], at_us: int, phases_us: tuple[int, int, int]
) -> None:
    prompt, output = tokens
    queue_us, ttft_us, e2e_us = np.cumsum(phases_us)
    times = {"queue": queue_us / 1e6, "ttft": ttft_us / 1e6, "e2e": e2e_us / 1e6}
    laid = lay_apart(observed(workload([attempt(at_us / 1e6, prompt, output, **times)])))
    assert laid.gaps()[0] < EXACT
    assert laid.gaps(with_end(laid.timeline, 0, int(laid.timeline.end_us[0]) + 1))[0] > EXACT


def test_blocks_too() -> None:
    """Whole blocks have their own identity: rounding waste is spread evenly over a phase, its integral is exact."""
    timeline = observed(workload(random_rows(7, 300)))
    laid = lay_apart(timeline)
    residency = request_residency(laid.timeline, REPLICA, laid.groups * laid.window_s)
    swept = sum(phase.block_bytes.sum() for phase in residency.values())
    parts = (prefill_kv_time(laid.timeline, REPLICA), decode_kv_time(laid.timeline, REPLICA))
    assert swept == pytest.approx(sum(part.block_byte_s.sum() for part in parts), rel=EXACT)


def test_tool_waits_too() -> None:
    waits = [
        dict.fromkeys(TOOL_WAITS)
        | {"arrived_at": MONDAY + timedelta(seconds=60 + 7.3 * n), "kind": "tool", "wait_s": 3.1 * n + 0.1}
        | {"prior_context_tokens": 1000 + 37 * n}
        for n in range(20)
    ]
    work = workload([], waits)
    swept = tool_wait_residency(work.tool_waits, REPLICA, 3600).linear_bytes.sum()
    assert swept == pytest.approx(tool_wait_kv_time(work.tool_waits, REPLICA).linear_byte_s.sum(), rel=EXACT)


@pytest.mark.shared
def test_azure(shared_dir: Path) -> None:
    rows = azure_rows(shared_dir)
    work = make_workload(rows, pl.DataFrame(schema=TOOL_WAITS), "llama", "2023-W46")
    assert work.rows == 19_366
    timeline = observed(work)
    assert_little(timeline)
    assert_little(slo_timeline(work, REPLICA, slo_pace(REPLICA)))
    residency = request_residency(timeline, REPLICA, WEEK_S)
    held = (
        prefill_kv_time(timeline, REPLICA).linear_byte_s.sum() + decode_kv_time(timeline, REPLICA).linear_byte_s.sum()
    )
    assert sum(phase.linear_bytes.sum() for phase in residency.values()) == pytest.approx(held, rel=EXACT)


def test_sample(tmp_path: Path) -> None:
    """One day of the sample's three services, as they stand in its gateway logs."""
    write_sample(Home(tmp_path), tmp_path / "sample", SampleSettings(days=1, thin=20), progress)
    rows = spend_log_rows(sorted((tmp_path / "sample").glob("*.jsonl.gz")))
    assert len(rows) > 500
    week = rows[0]["week"]
    frame = attempts_frame(row for row in rows if row["week"] == week)
    assert_little(observed(make_workload(frame, pl.DataFrame(schema=TOOL_WAITS), "all", week)))


def test_the_two_sides_are_computed_apart() -> None:
    tree = ast.parse(Path(kv_time.__file__).read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not modules & {"transforms.planner.residency.sweep", "transforms.planner.residency.occupancy"}
