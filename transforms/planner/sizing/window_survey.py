"""What each window of a week asks for, and which of them decide the count: a look at all before any is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import parts_of
from transforms.planner.residency.pace import prefill_times_s, slo_pace
from transforms.workload import MICROS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]
    Requests = tuple[Wholes, Reals, Reals]
    """Of some requests: the number of their window (−1 before the week), prompt and output tokens."""

FULL_WINDOW_REQUESTS = 200
"""Windows with fewer requests do not judge an objective: their 95 % quantile says nothing."""

WINDOWS_BY_MEASURE = 3
"""Busiest windows by KV·time, and as many by arrivals, that are replayed in place of the week."""

WARM_UP_E2E = 2.0
"""Warm-up in 99 % quantiles of the response time (planner.md §4)."""

LONGEST_WARM_UP_S = 3 * 3600.0
"""Contexts that were last used before that are taken to be gone."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What the windows of a week ask for, one element a window."""

    requests: Wholes
    kv_token_s: Reals
    """Held by its requests at SLO pace."""
    refused: Wholes
    """Prompts of max_model_len or more."""
    e2e_p99_s: float
    """99 % quantile of the response times at SLO pace."""

    @property
    def full(self) -> Wholes:
        """Numbers of the windows with enough requests to judge an objective."""
        return np.flatnonzero(self.requests >= FULL_WINDOW_REQUESTS)

    def busiest(self) -> list[int]:
        """Full windows that hold most KV·time or take most arrivals, in order."""
        chosen: set[int] = set()
        for sums in (self.kv_token_s, self.requests.astype(np.float64)):
            chosen |= set(self.full[np.argsort(-sums[self.full], kind="stable")[:WINDOWS_BY_MEASURE]].tolist())
        return sorted(chosen)

    def deciding(self, hardest: int | None) -> list[int]:
        """The busiest windows, the one that closed forms find `hardest`, and the one with most refused prompts."""
        full = set(self.full.tolist())
        chosen = set(self.busiest()) | (full & {hardest})
        if full and self.refused.any():
            shares = {number: self.refused[number] / self.requests[number] for number in full}
            chosen.add(max(shares, key=lambda number: (shares[number], -number)))
        return sorted(chosen)


@dataclass(frozen=True)
class Stretch:
    """A part of the week that is replayed: from the warm-up to the cool-down, and the windows in it that count."""

    low_s: float
    high_s: float
    windows: tuple[int, ...]


def stretches_of(windows: Iterable[int], window_s: int, warm_s: float, cool_s: float) -> list[Stretch]:
    """Parts of the week in which `windows` are replayed warm, near ones together."""
    found = list[Stretch]()
    for number in sorted(windows):
        low_s, high_s = number * window_s - warm_s, (number + 1) * window_s + cool_s
        if found and low_s <= found[-1].high_s:
            last = found.pop()
            low_s, windows_of = last.low_s, (*last.windows, number)
        else:
            windows_of = (number,)
        found.append(Stretch(low_s, high_s, windows_of))
    return found


def at_slo_pace(replica: Replica, prompt_tokens: Reals, output_tokens: Reals) -> tuple[Reals, Reals]:
    """Response time of each request, s, and the token-seconds it holds, nothing of it cached."""
    pace = slo_pace(replica)
    prefill_s = prefill_times_s(replica, pace, prompt_tokens, np.zeros(len(prompt_tokens)))
    decode_s = np.maximum(output_tokens - 1, 0) * pace.token_s
    held: Reals = prompt_tokens / 2 * prefill_s + (prompt_tokens + output_tokens / 2) * decode_s
    return prefill_s + decode_s, held


def surveyed(parts: Iterable[Requests], windows: int, requests: int, replica: Replica) -> Survey:
    """Survey of so many windows from so many requests, in parts."""
    counts, refused = np.zeros(windows, dtype=np.int64), np.zeros(windows, dtype=np.int64)
    held, times_s, low = np.zeros(windows), np.empty(requests), 0
    limit = np.inf if replica.max_model_len_tokens is None else replica.max_model_len_tokens
    for window, prompt, output in parts:
        e2e_s, token_s = at_slo_pace(replica, prompt, output)
        times_s[low : low + len(window)] = e2e_s
        low += len(window)
        is_of_week = window >= 0
        number, is_refused = window[is_of_week], (prompt >= limit)[is_of_week]
        counts += np.bincount(number, minlength=windows)
        held += np.bincount(number, token_s[is_of_week], minlength=windows)
        refused += np.bincount(number[is_refused], minlength=windows)
    p99_s = float(np.quantile(times_s, 0.99, overwrite_input=True)) if requests else 0.0
    return Survey(counts, held, refused, p99_s)


def survey_of(workload: Workload, replica: Replica) -> Survey:
    """Survey of a week that is not in memory as requests; attempts of unknown output length do not count in it."""
    last = int(workload.arrived_us[-1]) if workload.rows else 0

    def requests(rows: slice) -> Requests:
        attempts = workload.at(rows)
        window = np.maximum(attempts.arrived_us // (replica.window_s * MICROS), -1)
        return window, attempts.prompt_tokens, attempts.output_tokens

    windows = max(0, last // (replica.window_s * MICROS)) + 1
    return surveyed(map(requests, parts_of(workload.rows)), windows, workload.rows, replica)


def warm_up_of(workload: Workload, replica: Replica, survey: Survey) -> float:
    """Warm-up before its windows, s: as for a trace, but after gaps between turns the longest that there is."""
    longest_s, is_logged = survey.e2e_p99_s, ~np.isnan(workload.e2e_s) & ~workload.is_failed
    if is_logged.any():
        logged_s = workload.e2e_s[is_logged]
        longest_s = max(longest_s, float(np.quantile(logged_s, 0.99, overwrite_input=True)))
    has_turns = workload.rows - workload.labels["session_id"].null_count() > workload.sessions
    at_least_s = LONGEST_WARM_UP_S if replica.has_prefix_caching and has_turns else 0.0
    return max(WARM_UP_E2E * longest_s, at_least_s)
