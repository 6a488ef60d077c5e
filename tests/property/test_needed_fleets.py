"""Fleets that a plan asks for, on real traffic made denser: R keeps the objective, R − 1 does not, the plan does."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from planner_week import ATTEMPTS, MONDAY, STEP, TOOL_WAITS, WEEK, attempt, azure_rows, replica, site, workload

from flows.reading.rows import read_rows
from transforms.fleet import Source
from transforms.planner.replay.engine import replay
from transforms.planner.replay.rate_scaling import scaled
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.replay.sustainable_rate import kept_both
from transforms.planner.residency.occupancy import request_residency, total_block_bytes
from transforms.planner.residency.pace import slo_pace
from transforms.planner.residency.timeline import slo_timeline
from transforms.planner.sizing.demand import kv_demand, week_peak
from transforms.planner.sizing.plan_deployment import plan_deployment
from transforms.planner.sizing.replay_week import ReplayWeek, replay_week
from transforms.planner.sizing.replica import Replica
from transforms.planner.steps.hardware import ASSUMED
from transforms.workload import Workload
from transforms.workload_rows import make_workload


def denser(rows: pl.DataFrame, factor: float) -> Workload:
    """`rows` (of fct_attempts) with `factor` times the arrivals, from Monday 00:00 on."""
    canonical = rows.with_columns(
        operation=pl.lit("chat"), served_by=pl.lit("backend"), tool_calls=pl.lit(None, pl.Int32),
        tool_results=pl.lit(None, pl.Int32), finish_reason=pl.lit(None, pl.String),
        logged_tool_wait_s=pl.lit(None, pl.Float64), request_id=pl.int_range(pl.len()).cast(pl.String),
    )  # fmt: skip
    trace = scaled(replay_trace(canonical, "rows"), factor)
    original = trace.request_id.str.split("~").list.first().cast(pl.Int64)
    arrived = [MONDAY + timedelta(seconds=float(at)) for at in trace.columns.arrived_s]
    made = rows[original.to_numpy()].with_columns(
        pl.Series("arrived_at", arrived, pl.Datetime("us", "UTC")), week=pl.lit(WEEK)
    )
    return make_workload(made.select(*ATTEMPTS), pl.DataFrame(schema=TOOL_WAITS), "chat", WEEK)


def kept_ratio(week: ReplayWeek, replicas: int, factor: float = 1.0) -> float:
    """Lowest share kept in an hour with 200 requests, all of them replayed."""
    trace = scaled(week.trace, factor)
    result = replay(trace.columns, dataclasses.replace(week.settings, replicas=replicas), week.costs)
    is_kept = kept_both(result, week.replica.ttft_p95_s, week.replica.tpot_p95_s)
    hour = np.floor((trace.columns.arrived_s + week.start_s) / 3600)
    return float(min(is_kept[hour == n].mean() for n in np.unique(hour) if (hour == n).sum() >= 200))


def check(work: Workload, one: Replica) -> None:
    week = replay_week(work, one, 1)
    assert week is not None
    rows = plan_deployment(work, site(one), ASSUMED, "0" * 12)["plan_replicas"]
    count = rows.filter(demand="latency")["replicas_replicas"].item()
    needed, factor = rows["needed_replicas"][0], rows["slo_missed_factor"][0]
    assert count >= 3
    assert kept_ratio(week, count) >= 0.95
    assert kept_ratio(week, count + 1) >= 0.95
    assert kept_ratio(week, count - 1) < 0.95
    assert needed > count
    assert kept_ratio(week, needed) >= 0.95
    assert factor > 1
    assert kept_ratio(week, needed, 1.1 * factor) < 0.95


def slower(times: float, **changes: float) -> Replica:
    """A replica whose products take `times` as long: a third of a trace then takes several of them."""
    return replica(step=dataclasses.replace(STEP, flop_per_s=STEP.flop_per_s / times), **changes)


@pytest.mark.shared
def test_azure_conversations(shared_dir: Path) -> None:
    third = azure_rows(shared_dir).filter(pl.int_range(pl.len()) % 3 == 0)
    check(denser(third, 1.4), slower(30, ttft_p95_s=5.0, tpot_p95_s=0.5))


@pytest.mark.shared
def test_mooncake_conversations(shared_dir: Path) -> None:
    path = shared_dir / "traces/mooncake/conversation_trace.jsonl"
    rows = read_rows(path, Source("mooncake", str(path), origin="1970-01-05T00:00:00Z")).rows
    known = rows.with_columns(week=pl.lit(WEEK), is_failed=pl.lit(value=False))
    third = known.select(*ATTEMPTS).filter(pl.int_range(pl.len()) % 3 == 0)
    check(denser(third, 1.4), slower(4, ttft_p95_s=15.0, tpot_p95_s=0.2))


def agents(seed: int) -> list[dict[str, object]]:
    """Sessions of growing prompts within an hour, tools waited for in between."""
    random, rows = np.random.default_rng(seed), []
    for session in range(450):
        at, prompt = float(random.uniform(0, 2400)), int(random.integers(500, 4000))
        for turn in range(1, 9):
            rows.append(
                attempt(at, prompt, int(random.integers(50, 400)), session_id=f"s{session}", turn=turn, e2e=4.0)
            )
            at, prompt = at + 4.0 + float(random.exponential(20)), prompt + int(random.integers(100, 800))
    return sorted(rows, key=lambda row: row["arrived_at"])  # type: ignore[arg-type,return-value]


def test_kv_demand_does_not_depend_on_the_fleet_that_made_the_log() -> None:
    """The same trace logged from the needed fleet and from three times as many: turns shift, the demand hardly."""
    slow = replica(step=dataclasses.replace(STEP, flop_per_s=2e13), ttft_p95_s=4.0, tpot_p95_s=0.4)
    week = replay_week(workload(agents(2)), slow, 1)
    assert week is not None
    needed = next(count for count in range(1, 40) if kept_ratio(week, count) >= 0.95)
    demands = []
    for replicas in (needed, 3 * needed):
        ran = replay(week.trace.columns, dataclasses.replace(week.settings, replicas=replicas), week.costs)
        columns = zip(ran.arrived_s, week.trace.columns.prompt_tokens, week.trace.columns.output_tokens,
                      ran.queue_s, ran.ttft_s, ran.e2e_s, strict=True)  # fmt: skip
        logged = [attempt(float(a), int(p), int(o), queue=float(q), ttft=float(t), e2e=float(e))
                  for a, p, o, q, t, e in columns]  # fmt: skip
        made = slo_timeline(workload(logged), slow, slo_pace(slow))
        demands.append(kv_demand(week_peak(total_block_bytes(request_residency(made, slow))).value, slow, 0.3))
    assert needed >= 2
    assert demands[0] != demands[1]
    assert demands[0] == pytest.approx(demands[1], rel=0.1)
