"""When each attempt's prefill starts, its first token comes and it ends: as logged, or at SLO pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import parts_of
from transforms.planner.residency.pace import prefill_times_s
from transforms.workload import MICROS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from transforms.attempts import Attempts, Rows
    from transforms.planner.residency.pace import Pace
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Timeline:
    """What each attempt holds and when; one element an attempt, µs since the week's start.

    Nothing before `prefill_us`; `cached_tokens` growing to `prompt_tokens` until `first_us`; growing by `output_tokens`
    until `end_us`.
    """

    prefill_us: Wholes
    first_us: Wholes
    end_us: Wholes
    cached_tokens: Reals
    prompt_tokens: Reals
    """The part of the prompt that was prefilled: all of it unless the attempt failed on the way."""
    output_tokens: Reals
    is_modelled: Flags
    """Some instant comes from the step-time model, not from the log."""

    @property
    def rows(self) -> int:
        """Attempts in it."""
        return len(self.end_us)

    def at(self, rows: Rows | Flags) -> Timeline:
        """That of the chosen attempts."""
        return Timeline(**{name: values[rows] for name, values in vars(self).items()})

    def parts(self) -> Iterator[Timeline]:
        """It in parts of bounded size, in order."""
        yield from map(self.at, parts_of(self.rows))


@dataclass(frozen=True, eq=False)
class WeekTimeline:
    """The timeline of a whole week, made anew part by part each time it is walked: never all of it in memory."""

    rows: int
    at: Callable[[Rows], Timeline]
    """That of the chosen attempts."""

    def parts(self) -> Iterator[Timeline]:
        """It in parts of bounded size, in order."""
        yield from map(self.at, parts_of(self.rows))


AnyTimeline = Timeline | WeekTimeline


def joined(parts: Iterator[Timeline], empty: Timeline) -> Timeline:
    """`parts` as one timeline; `empty` where there is none."""
    columns = [vars(part) for part in parts] or [vars(empty)]
    return Timeline(**{name: np.concatenate([part[name] for part in columns]) for name in columns[0]})


def has_modelled(timeline: AnyTimeline) -> bool:
    """Whether some instant of `timeline` comes from the step-time model."""
    return any(part.is_modelled.any() for part in timeline.parts())


def observed_week(workload: Workload, replica: Replica, pace: Pace, token_s: Callable[[Wholes], Reals]) -> WeekTimeline:
    """`observed_timeline` of a week; `token_s` gives what an output token takes where attempts arrive at those µs."""

    def at(rows: Rows) -> Timeline:
        attempts = workload.at(rows)
        return observed_timeline(attempts, replica, pace, token_s(attempts.arrived_us))

    return WeekTimeline(workload.rows, at)


def slo_week(workload: Workload, replica: Replica, pace: Pace) -> WeekTimeline:
    """`slo_timeline` of a week."""
    is_accepted = accepted(workload, replica)
    if is_accepted.all():
        return WeekTimeline(workload.rows, lambda rows: slo_timeline(workload.at(rows), replica, pace))
    taken = np.flatnonzero(is_accepted)
    return WeekTimeline(len(taken), lambda rows: slo_timeline(workload.at(taken[rows]), replica, pace))


def observed_timeline(attempts: Attempts, replica: Replica, pace: Pace, token_s: Reals) -> Timeline:
    """Timeline as logged; what the log lacks comes from the step-time model and is marked modelled.

    `token_s` is what an output token takes on today's fleet when each attempt arrives. An unknown queue time counts
    as 0. A failed attempt without a first token has prefilled what its time allowed.
    """
    has_first, has_end = ~np.isnan(attempts.ttft_s), ~np.isnan(attempts.e2e_s)
    queue_s = np.nan_to_num(attempts.queue_s)
    needed_s = prefill_times_s(replica, pace, attempts.prompt_tokens, attempts.cached_tokens)
    decode_s = np.where(attempts.is_failed, 0.0, np.maximum(attempts.output_tokens - 1, 0) * token_s)
    first_s = np.where(has_first, attempts.ttft_s, queue_s + needed_s)
    end_s = np.where(has_end, attempts.e2e_s, first_s + decode_s)
    first_s = np.minimum(first_s, end_s)
    start_s = np.minimum(queue_s, first_s)
    is_cut = attempts.is_failed & ~has_first & (attempts.output_tokens == 0)
    done = np.where(is_cut, np.minimum((first_s - start_s) / needed_s, 1.0), 1.0)
    return Timeline(
        prefill_us=attempts.arrived_us + _micros(start_s),
        first_us=attempts.arrived_us + _micros(first_s),
        end_us=attempts.arrived_us + _micros(end_s),
        cached_tokens=attempts.cached_tokens,
        prompt_tokens=attempts.cached_tokens + done * (attempts.prompt_tokens - attempts.cached_tokens),
        output_tokens=attempts.output_tokens,
        is_modelled=~(has_first & has_end),
    )


def slo_timeline(attempts: Attempts, replica: Replica, pace: Pace) -> Timeline:
    """Timeline if the promise is kept: prefill on arrival beside the planned batch, then decode at SLO pace.

    Attempts whose prompt the engine would refuse (P ≥ max_model_len) are absent; outputs end at the model length.
    """
    taken = accepted(attempts, replica)
    arrived_us = attempts.arrived_us[taken]
    prompt, cached = attempts.prompt_tokens[taken], attempts.cached_tokens[taken]
    output = attempts.output_tokens[taken]
    if replica.max_model_len_tokens is not None:
        output = np.minimum(output, replica.max_model_len_tokens - prompt)
    first_us = arrived_us + _micros(prefill_times_s(replica, pace, prompt, cached))
    return Timeline(
        prefill_us=arrived_us,
        first_us=first_us,
        end_us=first_us + _micros(np.maximum(output - 1, 0) * pace.token_s),
        cached_tokens=cached,
        prompt_tokens=prompt,
        output_tokens=output,
        is_modelled=np.ones(len(prompt), dtype=np.bool_),
    )


def accepted(attempts: Attempts | Workload, replica: Replica) -> Flags:
    """Whether the engine takes each attempt: its prompt is shorter than max_model_len."""
    if replica.max_model_len_tokens is None:
        return np.ones(attempts.rows, dtype=np.bool_)
    return attempts.has_prompt_below(replica.max_model_len_tokens)


def _micros(seconds: Reals) -> Wholes:
    return np.rint(seconds * MICROS).astype(np.int64)
