"""A week's requests as the replay takes them on a fleet of any size, and the stretches of it that decide the count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.replay.replay_options import ReplayOptions, usual_router
from transforms.planner.replay.replay_settings import replay_settings
from transforms.planner.replay.replay_trace import replay_trace
from transforms.planner.replay.replay_types import Caching
from transforms.planner.replay.step_costs import step_costs
from transforms.planner.sizing.window_survey import (
    LONGEST_WARM_UP_S,
    WARM_UP_E2E,
    Stretch,
    at_slo_pace,
    stretches_of,
    survey_of,
    surveyed,
    warm_up_of,
)
from transforms.workload import ATTEMPT_COLUMNS, MICROS, micros, week_start

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import Settings
    from transforms.planner.replay.step_costs import StepCosts
    from transforms.planner.sizing.replica import Replica
    from transforms.planner.sizing.window_survey import Survey
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

ROUTER = "prefix_affinity"
"""Who answers keeps the context: a turn goes where most of it is cached unless that replica is far behind; without
anything cached, to the least outstanding. The log does not say which router it came through. Data-parallel ranks have a
router of their own (`usual_router`)."""

WHOLE_REQUESTS = 2_000_000
"""Weeks of more requests are judged by the windows that decide alone, and only those are read as requests."""

UNSEEN = {
    "tool_calls": pl.Int32,
    "tool_results": pl.Int32,
    "finish_reason": pl.String,
    "logged_tool_wait_s": pl.Float64,
}
"""Columns of canonical rows that say nothing to a plan: gaps between turns stay as logged, whatever they are for."""

REPLAY_COLUMNS = tuple(name for name in ATTEMPT_COLUMNS if name not in {"week", "turn", "model", "tenant"})


@dataclass(frozen=True, eq=False)
class ReplayWeek:
    """Trace, engine and clock of one deployment's week; seconds count from the week's start."""

    trace: ReplayTrace
    """Of a large week, what arrives in the stretches that decide."""
    start_s: float
    """First arrival: negative where requests of the week before still run."""
    e2e_s: Reals
    """Response time of each request at SLO pace."""
    settings: Settings
    """Of one replica."""
    costs: StepCosts
    replica: Replica
    survey: Survey
    """Of the whole week."""
    warm_s: float
    """Replayed before windows that count."""
    is_whole: bool
    """Whether the trace is that of the whole week."""

    @property
    def arrived_s(self) -> Reals:
        """Logged arrival of each request since the week's start."""
        arrived_s: Reals = self.trace.columns.arrived_s + self.start_s
        return arrived_s

    @property
    def window(self) -> Wholes:
        """Number of the window each request arrives in, by the log; −1 before the week."""
        return _window(self.trace, self.start_s, self.replica.window_s)


def replay_week(
    workload: Workload, replica: Replica, seed: int, hardest: int | None = None, whole_requests: int = WHOLE_REQUESTS
) -> ReplayWeek | None:
    """The week of `workload` on replicas like `replica`; None where nothing of it can be replayed.

    What the log shows arrived: sessions go on after failures, and only prompts of max_model_len or more are refused.
    Unknown outputs are drawn, seeded; those of failures count as none. Of a week of more than `whole_requests` only the
    windows that decide are read, with what they take before and after; `hardest` is the one by closed forms.
    """
    is_whole = workload.replayable_requests <= whole_requests
    survey = None if is_whole else survey_of(workload, replica)
    warm_s = 0.0 if survey is None else warm_up_of(workload, replica, survey)
    spans = None
    if survey is not None:
        spans = stretches_of(survey.deciding(hardest), replica.window_s, warm_s, survey.e2e_p99_s)
    rows = _rows(workload, spans)
    is_known = rows["output_tokens"].is_not_null()
    if rows.is_empty() or not is_known.any() or not replica.engine.enable_chunked_prefill:
        return None
    if not (is_known & ~rows["is_failed"]).any():
        rows = rows.filter(is_known)
    trace = replay_trace(rows, f"deployment '{workload.deployment_id}'", seed)
    columns = trace.columns
    prompt, output = columns.prompt_tokens.astype(np.float64), columns.output_tokens.astype(np.float64)
    options = ReplayOptions(router=router_of(replica), requested_output="ignore", failure_ends_session=False, seed=seed)
    settings = engine_settings(replica, trace, options)
    first = rows["arrived_at"].dt.epoch("us")[0] - micros(week_start(workload.week))
    if survey is None:
        window = _window(trace, first / MICROS, replica.window_s)
        survey = surveyed([(window, prompt, output)], int(window[-1]) + 1 if len(window) else 0, len(window), replica)
        warm_s = _warm_up_s(trace, settings, survey.e2e_p99_s)
    return ReplayWeek(
        trace=trace,
        start_s=first / MICROS,
        e2e_s=at_slo_pace(replica, prompt, output)[0],
        settings=settings,
        costs=replica_costs(replica),
        replica=replica,
        survey=survey,
        warm_s=warm_s,
        is_whole=is_whole,
    )


def _rows(workload: Workload, spans: list[Stretch] | None) -> pl.DataFrame:
    """Rows of the week, or of `spans` of it, as the trace takes them."""
    if spans is None:
        rows = workload.rows_to_replay(REPLAY_COLUMNS)
    else:
        bounds = [(span.low_s * MICROS, span.high_s * MICROS) for span in spans] or [(0.0, 0.0)]
        rows = pl.concat(workload.rows_to_replay(REPLAY_COLUMNS, low_us, high_us) for low_us, high_us in bounds)
    return rows.with_columns(
        output_tokens=pl.when(pl.col("is_failed"))
        .then(pl.col("output_tokens").fill_null(0))
        .otherwise("output_tokens"),
        operation=pl.lit("chat"),
        served_by=pl.lit("backend"),
        **{name: pl.lit(None, kind) for name, kind in UNSEEN.items()},
        request_id=pl.lit(""),
    )


def _window(trace: ReplayTrace, start_s: float, window_s: int) -> Wholes:
    number: Wholes = np.floor((trace.columns.arrived_s + start_s) / window_s).astype(np.int64)
    return np.maximum(number, -1)


def router_of(replica: Replica) -> str:
    """Router that a plan takes the engines of `replica`s to stand behind."""
    return usual_router(replica.engine, ROUTER)


def replica_costs(replica: Replica) -> StepCosts:
    """What a step of one rank of `replica` costs in a replay."""
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
    )
    return replay_settings(engine, options, replica.rank_pool, replica.max_model_len_tokens, trace)


def stretches(week: ReplayWeek, windows: list[int]) -> list[Stretch]:
    """Parts of the week in which `windows` are replayed warm, near ones together."""
    return stretches_of(windows, week.replica.window_s, week.warm_s, week.survey.e2e_p99_s)


def whole_week(week: ReplayWeek) -> list[Stretch]:
    """The week as one stretch, every full window of it counted."""
    return [Stretch(-np.inf, np.inf, tuple(week.survey.full.tolist()))]


def _warm_up_s(trace: ReplayTrace, settings: Settings, e2e_p99_s: float) -> float:
    """Twice the 99 % quantile of the response time, as logged or at SLO pace; with prefix caching also of the gaps.

    A session whose turns before the warm-up are missing would find nothing of its context cached.
    """
    logged_s = trace.logged.e2e_s
    logged_s = logged_s[~np.isnan(logged_s)]
    longest_s = max(e2e_p99_s, float(np.quantile(logged_s, 0.99))) if len(logged_s) else e2e_p99_s
    warm_s = WARM_UP_E2E * longest_s
    columns = trace.columns
    if settings.caching != Caching.OFF and (columns.parent >= 0).any():
        gaps_s = columns.delay_s[(columns.parent >= 0) & ~columns.from_start]
        warm_s = max(
            warm_s, min(float(np.quantile(gaps_s, 0.99, method="lower")), LONGEST_WARM_UP_S) if len(gaps_s) else 0.0
        )
    return warm_s
