"""Replays that stand for each other: scenarios whose limits bind nobody are one and the same replay."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_checks import check_settings
from transforms.planner.replay.replay_memory import series_slack_s
from transforms.planner.replay.replay_types import NO_LIMIT, RequestedRule

if TYPE_CHECKING:
    from transforms.planner.replay.replay_types import ReplayResult, Settings, TraceColumns
    from transforms.planner.replay.step_costs import StepCosts

MOST_KEPT = 4
"""Replays kept by one worker; the points of a sweep come one after the other."""


@dataclass(frozen=True, eq=False)
class Made:
    """One replay, what was asked, and how many seats of a replica it can have taken at once."""

    columns: TraceColumns
    settings: Settings
    costs: StepCosts
    result: ReplayResult
    most_seats: int


@dataclass(eq=False)
class SharedReplays:
    """The last replays made; a scenario that cannot come out otherwise than one of them gets its result."""

    kept: deque[Made] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    def result(self, columns: TraceColumns, settings: Settings, costs: StepCosts) -> ReplayResult:
        """What `replay` gives for the same arguments."""
        check_settings(settings)
        asked = unbound(columns, settings)
        for made in self.kept:
            if made.costs == costs and _stands_for(made, asked) and is_same(made.columns, columns):
                return made.result
        result = replay(columns, asked, costs)
        seats = most_seats(result, series_slack_s(columns, asked, costs))
        self.kept.append(Made(columns, asked, costs, result, seats))
        return result


def unbound(columns: TraceColumns, settings: Settings) -> Settings:
    """`settings` without a max_model_len that neither refuses nor cuts any of the requests."""
    tokens = columns.prompt_tokens.astype(np.int64) + np.maximum(columns.output_tokens, 1)
    if settings.requested_rule != RequestedRule.IGNORE or int(tokens.max(initial=0)) > settings.max_model_len:
        return settings
    return replace(settings, max_model_len=NO_LIMIT)


def _stands_for(made: Made, asked: Settings) -> bool:
    """Whether `asked` differs from what was replayed in nothing, or in a number of seats that neither runs out of."""
    if made.settings == asked:
        return True
    is_alike = replace(made.settings, max_num_seqs=asked.max_num_seqs) == asked and asked.autoscaling is None
    return is_alike and made.most_seats < min(made.settings.max_num_seqs, asked.max_num_seqs)


def most_seats(result: ReplayResult, step_s: float) -> int:
    """No fewer than the seats of one replica that were taken at once, where no step took longer than `step_s`.

    A request is taken to have one from its first step to its end, and as an engine that decides a step ahead frees it
    late, for a step more.
    """
    has_begun = np.isfinite(result.queue_s) & (result.replica >= 0)
    begun_s = result.arrived_s + result.queue_s
    ended_s = np.where(np.isfinite(result.e2e_s), result.arrived_s + result.e2e_s + step_s, np.inf)
    most = 0
    for replica in np.unique(result.replica[has_begun]):
        own = has_begun & (result.replica == replica)
        starts, ends = np.sort(begun_s[own]), np.sort(ended_s[own])
        taken = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="left")
        most = max(most, int(taken.max()))
    return most


def is_same(one: TraceColumns, other: TraceColumns) -> bool:
    """Whether two traces are the same requests."""
    if one is other:
        return True
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
