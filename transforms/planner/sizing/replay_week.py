"""A week's requests as the replay takes them on a fleet of any size, and the stretches of it that decide the count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.replay.replay_settings import replay_settings
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.replay.replay_types import Caching, pool_of
from transforms.planner.replay.step_costs import step_costs
from transforms.planner.residency.pace import prefill_times_s, slo_pace
from transforms.workload import MICROS, week_start

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import Settings
    from transforms.planner.replay.step_costs import StepCosts
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

ROUTER = "prefix_affinity"
"""Who answers keeps the context: a turn goes where most of it is cached unless that replica is far behind; without
anything cached, to the least outstanding. The log does not say which router it came through."""

FULL_WINDOW_REQUESTS = 200
"""Windows with fewer requests do not judge an objective: their 95 % quantile says nothing."""

WINDOWS_BY_MEASURE = 3
"""Busiest windows by KV·time, and as many by arrivals, that are replayed in place of the week."""

WARM_UP_E2E = 2.0
"""Warm-up in 99 % quantiles of the response time (planner.md §4)."""

UNSEEN = {
    "tool_calls": pl.Int32,
    "tool_results": pl.Int32,
    "finish_reason": pl.String,
    "logged_tool_wait_s": pl.Float64,
}
"""Columns of canonical rows that say nothing to a plan: gaps between turns stay as logged, whatever they are for."""

LONGEST_WARM_UP_S = 3 * 3600.0
"""Contexts that were last used before that are taken to be gone."""


@dataclass(frozen=True, eq=False)
class ReplayWeek:
    """Trace, engine and clock of one deployment's week; seconds count from the week's start."""

    trace: ReplayTrace
    start_s: float
    """First arrival: negative where requests of the week before still run."""
    e2e_s: Reals
    """Response time of each request at SLO pace."""
    kv_token_s: Reals
    """Token-seconds each holds at SLO pace."""
    settings: Settings
    """Of one replica."""
    costs: StepCosts
    replica: Replica

    @property
    def arrived_s(self) -> Reals:
        """Logged arrival of each request since the week's start."""
        arrived_s: Reals = self.trace.columns.arrived_s + self.start_s
        return arrived_s

    @property
    def window(self) -> Wholes:
        """Number of the window each request arrives in, by the log; −1 before the week."""
        number: Wholes = np.floor(self.arrived_s / self.replica.window_s).astype(np.int64)
        return np.maximum(number, -1)


@dataclass(frozen=True)
class Stretch:
    """A part of the week that is replayed: from the warm-up to the cool-down, and the windows in it that count."""

    low_s: float
    high_s: float
    windows: tuple[int, ...]


def replay_week(workload: Workload, replica: Replica, seed: int) -> ReplayWeek | None:
    """The week of `workload` on replicas like `replica`; None where nothing of it can be replayed.

    What the log shows arrived: sessions go on after failures, and only prompts of max_model_len or more are refused.
    Unknown outputs are drawn, seeded; those of failures count as none.
    """
    rows = workload.rows_to_replay().with_columns(
        output_tokens=pl.when(pl.col("is_failed"))
        .then(pl.col("output_tokens").fill_null(0))
        .otherwise("output_tokens"),
        operation=pl.lit("chat"),
        served_by=pl.lit("backend"),
        **{name: pl.lit(None, kind) for name, kind in UNSEEN.items()},
        request_id=pl.lit(""),
    )
    is_known = rows["output_tokens"].is_not_null()
    if rows.is_empty() or not is_known.any() or not replica.engine.enable_chunked_prefill:
        return None
    if not (is_known & ~rows["is_failed"]).any():
        rows = rows.filter(is_known)
    trace = replay_trace(rows, f"deployment '{workload.deployment_id}'", seed)
    pace, columns = slo_pace(replica), trace.columns
    prompt, output = columns.prompt_tokens.astype(np.float64), columns.output_tokens.astype(np.float64)
    prefill_s = prefill_times_s(replica, pace, prompt, np.zeros(len(prompt)))
    decode_s = np.maximum(output - 1, 0) * pace.token_s
    options = ReplayOptions(router=ROUTER, requested_output="ignore", failure_ends_session=False, seed=seed)
    first = rows["arrived_at"].dt.epoch("us")[0] - int(week_start(workload.week).timestamp()) * MICROS
    return ReplayWeek(
        trace=trace,
        start_s=first / MICROS,
        e2e_s=prefill_s + decode_s,
        kv_token_s=prompt / 2 * prefill_s + (prompt + output / 2) * decode_s,
        settings=engine_settings(replica, trace, options),
        costs=replica_costs(replica),
        replica=replica,
    )


def replica_costs(replica: Replica) -> StepCosts:
    """What a step of `replica` costs in a replay."""
    mixed_s = replica.step.context_memory_s * replica.mixed_context_factor
    return step_costs(replica.step)._replace(mixed_context_s=mixed_s)


def engine_settings(replica: Replica, trace: ReplayTrace, options: ReplayOptions) -> Settings:
    """Settings of one replica for replaying `trace`, under the limits that a plan counts with."""
    engine = replace(
        replica.engine,
        max_num_seqs=replica.max_num_seqs,
        max_num_batched_tokens=replica.max_num_batched_tokens,
        enable_prefix_caching=replica.has_prefix_caching,
        speculative_tokens=replica.step.speculative_tokens,
        data_parallel_size=1,  # its step model has the ranks' batches together
    )
    pool = replica.pool or pool_of(replica.groups, replica.kv_capacity_bytes)
    return replay_settings(engine, options, pool, replica.max_model_len_tokens, trace)


def full_windows(week: ReplayWeek) -> Wholes:
    """Numbers of the windows with enough requests to judge an objective."""
    numbers, counts = np.unique(week.window[week.window >= 0], return_counts=True)
    return numbers[counts >= FULL_WINDOW_REQUESTS]


def busiest_windows(week: ReplayWeek) -> list[int]:
    """Full windows that hold most KV·time or take most arrivals, in order."""
    full, place = full_windows(week), np.maximum(week.window, 0)
    is_counted = week.window >= 0
    chosen: set[int] = set()
    for weights in (week.kv_token_s, np.ones(len(place))):
        sums = np.bincount(place[is_counted], weights[is_counted], minlength=int(full.max(initial=-1)) + 1)
        chosen |= set(full[np.argsort(-sums[full], kind="stable")[:WINDOWS_BY_MEASURE]].tolist())
    return sorted(chosen)


def stretches(week: ReplayWeek, windows: list[int]) -> list[Stretch]:
    """Parts of the week in which `windows` are replayed warm, near ones together."""
    warm_s, cool_s = _warm_up_s(week), float(np.quantile(week.e2e_s, 0.99))
    size, found = week.replica.window_s, list[Stretch]()
    for number in sorted(windows):
        low_s, high_s = number * size - warm_s, (number + 1) * size + cool_s
        if found and low_s <= found[-1].high_s:
            last = found.pop()
            low_s, windows_of = last.low_s, (*last.windows, number)
        else:
            windows_of = (number,)
        found.append(Stretch(low_s, high_s, windows_of))
    return found


def whole_week(week: ReplayWeek) -> list[Stretch]:
    """The week as one stretch, every full window of it counted."""
    return [Stretch(-np.inf, np.inf, tuple(full_windows(week).tolist()))]


def _warm_up_s(week: ReplayWeek) -> float:
    """Twice the 99 % quantile of the response time, as logged or at SLO pace; with prefix caching also of the gaps.

    A session whose turns before the warm-up are missing would find nothing of its context cached.
    """
    logged_s = week.trace.logged.e2e_s
    logged_s = logged_s[~np.isnan(logged_s)]
    longest_s = float(np.quantile(week.e2e_s, 0.99))
    if len(logged_s):
        longest_s = max(longest_s, float(np.quantile(logged_s, 0.99)))
    warm_s = WARM_UP_E2E * longest_s
    columns = week.trace.columns
    if week.settings.caching != Caching.OFF and (columns.parent >= 0).any():
        gaps_s = columns.delay_s[(columns.parent >= 0) & ~columns.from_start]
        warm_s = max(
            warm_s, min(float(np.quantile(gaps_s, 0.99, method="lower")), LONGEST_WARM_UP_S) if len(gaps_s) else 0.0
        )
    return warm_s
