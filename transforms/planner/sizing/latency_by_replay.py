"""The latency demand of a week by replay, where one is possible; the closed forms are where its search starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.replay_summary import quantile_of_sorted
from transforms.planner.replay.replay_types import REJECTED, Status
from transforms.planner.residency.traffic import windows_of
from transforms.planner.sizing.latency_estimate import ATTAINED_RATIO
from transforms.planner.sizing.latency_replay import Replays, counted_latencies, fewest_replicas, most_replicas
from transforms.planner.sizing.replay_week import replay_week, stretches, whole_week
from transforms.planner.steps.step_time import ttft_floor_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult
    from transforms.planner.sizing.demand import LatencyDemand
    from transforms.planner.sizing.replay_week import ReplayWeek
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LatencyReplay:
    """What stands behind a count that was replayed."""

    replays: Replays
    window: int
    """Number of the window that asks for most."""
    attained_ratio: float
    """Of that window, with the replicas it takes (or with one for each request, where none suffice)."""
    below_ratio: float | None
    """The same with one replica fewer; None where the count is 1."""
    floor_text: str | None
    """Why no number of replicas keeps the objectives; None where one does."""
    drawn_outputs: int
    cached_ratio: float | None
    """Share of the prompt tokens found in the cache on the fleet that the count is for."""

    @cached_property
    def hardest(self) -> tuple[ReplayTrace, NDArray[np.int64]]:
        """Requests of that window and of its own warm-up and cool-down as a trace, and their rows in the week's."""
        (stretch,) = stretches(self.replays.week, [self.window])
        return self.replays.part(stretch)


def latency_by_replay(
    workload: Workload, replica: Replica, closed: LatencyDemand, guess: int, seed: int
) -> LatencyDemand:
    """`closed` with the count that replays come to; as it is where no window can be replayed.

    `guess` is a count to start the search from where the closed forms know none.
    """
    hardest = None if closed.window is None else closed.window.start_s // replica.window_s
    week = replay_week(workload, replica, seed, hardest)
    if week is None or not len(week.survey.full):
        return closed
    replays, count = _searched(week, week.survey.deciding(hardest), closed.replicas or max(1, guess))
    found = _behind(replays, count)
    (window,) = windows_of(workload, replica, found.window)
    return replace(closed, replicas=count, window=window, closed_replicas=closed.replicas, replay=found)


def _searched(week: ReplayWeek, chosen: list[int], guess: int) -> tuple[Replays, int | None]:
    """Replays of the windows that decide, and the count they come to: that of the whole week.

    A window of the whole week that misses where the chosen ones keep is chosen too. Large weeks are not
    replayed whole.
    """
    every = Replays(week, whole_week(week))
    replays = Replays(week, stretches(week, chosen))
    count = fewest_replicas(replays, guess)
    while count is not None and week.is_whole and not every.is_kept(count):
        missed = next(one.window for one in map(every.lowest, (count, count + 1)) if not one.is_kept)
        if missed in chosen:  # found warm only by what came long before it
            return replays, fewest_replicas(every, count)
        chosen = sorted([*chosen, missed])
        replays = Replays(week, stretches(week, chosen))
        count = fewest_replicas(replays, count)
    return replays, count


def _behind(replays: Replays, count: int | None) -> LatencyReplay:
    shown = count if count is not None else most_replicas(replays.week)
    lowest = replays.lowest(shown)
    below = replays.lowest(count - 1) if count is not None and count > 1 else None
    window = lowest.window if below is None else below.window
    result, windows = replays.result(replays.stretch_of(window), shown)
    is_inside = windows == window
    part, _rows = replays.part(replays.stretch_of(window))
    prompts = part.columns.prompt_tokens[is_inside].sum()
    return LatencyReplay(
        replays=replays,
        window=window,
        attained_ratio=lowest.attained_ratio,
        below_ratio=None if below is None else below.attained_ratio,
        floor_text=None
        if count is not None
        else _floor_text(replays.week, result, is_inside, part.columns.prompt_tokens),
        drawn_outputs=replays.week.trace.drawn_outputs,
        cached_ratio=float(result.cached_tokens[is_inside].sum() / prompts) if prompts else None,
    )


def latency_of_fleet(found: LatencyReplay, replicas: int) -> dict[str, Reals]:
    """Seconds by measure of the requests of the hardest window on `replicas` replicas; infinite: never answered."""
    result, windows = found.replays.result(found.replays.stretch_of(found.window), replicas)
    return counted_latencies(result, windows == found.window)


def _floor_text(
    week: ReplayWeek, result: ReplayResult, is_inside: NDArray[np.bool_], prompt_tokens: NDArray[np.int32]
) -> str:
    """Why a replica for each request is not enough: refused prompts, or what an idle replica takes."""
    replica = week.replica
    statuses = result.status[is_inside]
    refused = float(np.isin(statuses, REJECTED).mean())
    if refused > 1 - ATTAINED_RATIO:
        pool = " or need more than a replica's KV" if (statuses == Status.LARGER_THAN_POOL).any() else ""
        return (
            f"no number of replicas meets the objective: {100 * refused:.2g} % of the prompts of that window are of "
            f"max_model_len = {replica.max_model_len_tokens} or more{pool}, and a request that is refused is a miss"
        )
    found = counted_latencies(result, is_inside)
    ttft_s, tpot_s = (quantile_function(found[name])(ATTAINED_RATIO) for name in ("ttft_s", "tpot_s"))
    floor_s = ttft_floor_s(replica.step, float(np.quantile(prompt_tokens[is_inside], ATTAINED_RATIO)), 0.0)
    return (
        f"no number of replicas meets ttft_p95_s = {replica.ttft_p95_s:g} and tpot_p95_s = {replica.tpot_p95_s:g}: "
        f"on an idle replica TTFT p95 is {ttft_s:.3g} s (floor {floor_s:.3g} s at full peak, nothing cached) "
        f"and a token takes {tpot_s:.3g} s"
    )


def quantile_function(values: Reals) -> Callable[[float], float]:
    """Quantile of the known of `values` at a ratio (linear; infinite beside an infinite one); NaN without any."""
    known = np.sort(values[~np.isnan(values)])

    def quantile(ratio: float) -> float:
        return quantile_of_sorted(known, ratio) if len(known) else math.nan

    return quantile
