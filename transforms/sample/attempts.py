"""Finished attempts of one service and day: the plan and the times of the simulation, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.sample.calls import Floats, Ints, Uids, mixed
from transforms.sample.services import DAY_S

if TYPE_CHECKING:
    from transforms.sample.traffic import Traffic

MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class Attempts:
    """Attempts in order of start, one a row; times in µs since the first day, `agent_uid` 0 for the main agent."""

    start_us: Ints
    first_us: Ints
    end_us: Ints
    uid: Uids
    attempt: Ints
    outcome: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    reasoning_tokens: Ints
    limit_tokens: Ints
    tool_calls: Ints
    tool_results: Ints
    replica: Ints
    session_uid: Uids
    agent_uid: Uids
    tenant: Ints
    user: Ints
    is_opening: Ints

    def __len__(self) -> int:
        """Rows."""
        return len(self.uid)


def attempts_of(traffic: Traffic, day: int, thin: int = 1) -> Attempts:
    """The attempts that start on `day`, counted from the first; of every `thin` sessions one, whole."""
    calls, timings, sessions = traffic.calls, traffic.timings, traffic.sessions
    session_uid = sessions.uid[calls.session]
    is_there = (timings.start_s >= day * DAY_S) & (timings.start_s < (day + 1) * DAY_S) & ~np.isnan(timings.end_s)
    rows = np.flatnonzero(is_there & (session_uid % np.uint64(thin) == 0))
    rows = rows[np.argsort(timings.start_s[rows], kind="stable")]
    agent = traffic.chains.agent[calls.chain[rows]]
    is_opening = np.zeros(len(calls), np.int64)
    is_opening[np.unique(calls.chain, return_index=True)[1]] = 1
    return Attempts(
        start_us=_microseconds(timings.start_s[rows]),
        first_us=_microseconds(timings.first_s[rows]),
        end_us=_microseconds(timings.end_s[rows]),
        uid=calls.uid[rows],
        attempt=calls.attempt[rows],
        outcome=calls.outcome[rows],
        prompt_tokens=calls.prompt_tokens[rows],
        output_tokens=calls.output_tokens[rows],
        cached_tokens=timings.cached_tokens[rows],
        reasoning_tokens=calls.reasoning_tokens[rows],
        limit_tokens=calls.limit_tokens[rows],
        tool_calls=calls.tool_calls[rows],
        tool_results=calls.tool_results[rows],
        replica=timings.replica[rows],
        session_uid=session_uid[rows],
        agent_uid=np.where(agent > 0, mixed(session_uid[rows], agent), np.uint64(0)),
        tenant=sessions.tenant[calls.session[rows]],
        user=sessions.user[calls.session[rows]],
        is_opening=is_opening[rows],
    )


def _microseconds(seconds: Floats) -> Ints:
    return np.floor(seconds * MICROSECONDS).astype(np.int64)
