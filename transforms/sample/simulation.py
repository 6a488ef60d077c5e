"""Runs a plan on the replicas of its service: when each attempt starts, gives its first token and ends."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.sample.calls import ENGINE, HOLD, Calls, Floats, Ints, Plan
from transforms.sample.replica import Replica, Work

if TYPE_CHECKING:
    from transforms.sample.services import Engine, Service

JITTER_CUT_RATIO = 1e-3
"""Share of the exponential tail of gateway and tokeniser time that is cut off."""

ARRIVAL, REPLICA, BESIDE = range(3)
"""Kinds of event: a call arrives, a replica has something due, a call that passes beside the engine ends."""


@dataclass(frozen=True)
class Timings:
    """One row a call: times in s since the first day (NaN: never started), cached prompt tokens, replica from 0."""

    start_s: Floats
    first_s: Floats
    end_s: Floats
    cached_tokens: Ints
    replica: Ints


def simulate(plan: Plan, service: Service, until_s: float) -> Timings:
    """The `Timings` of all calls of `plan`; what would start at or after `until_s` does not start."""
    run = _Run(plan, service, until_s)
    while run.events:
        at_s, _, kind, index, version = heapq.heappop(run.events)
        if kind == ARRIVAL:
            run.arrive(index, at_s)
        elif kind == BESIDE:
            run.leave(index, at_s)
        elif version == run.replicas[index].version:
            run.settle(index, at_s)
    return Timings(
        np.array(run.start_s), np.array(run.first_s), np.array(run.end_s), np.array(run.cached), np.array(run.replica)
    )


class _Run:
    """The event queue, the replicas, and the times found so far."""

    def __init__(self, plan: Plan, service: Service, until_s: float) -> None:
        calls, count = plan.calls, len(plan.calls)
        self.until_s, self.is_sticky = until_s, service.is_sticky
        self.replicas = [Replica(service.engine) for _ in range(service.engine.replicas)]
        self.pool_tokens = service.engine.pool_tokens
        self.work = _works(calls, service.engine)
        self.mode, self.fixed_s, self.gap_s = calls.mode.tolist(), calls.fixed_s.tolist(), calls.gap_s.tolist()
        self.session = calls.session.tolist()
        self.start_s, self.first_s, self.end_s = ([math.nan] * count for _ in range(3))
        self.cached, self.replica = [0] * count, [0] * count
        self.events: list[tuple[float, int, int, int, int]] = []
        self.pushed, self.turn = 0, 0
        self.home: dict[int, int] = {}
        self.following, self.spawned, self.parent, self.unfinished = _links(plan)
        heads, starts_s = _heads(calls, len(plan.chains)), plan.chains.start_s.tolist()
        for head, start_s, parent in zip(heads, starts_s, plan.chains.parent.tolist(), strict=True):
            if head >= 0 > parent:
                self.push(start_s + self.gap_s[head], ARRIVAL, head)

    def push(self, at_s: float, kind: int, index: int, version: int = 0) -> None:
        """Put an event into the queue; those of the same instant keep the order they were put in."""
        self.pushed += 1
        heapq.heappush(self.events, (at_s, self.pushed, kind, index, version))

    def arrive(self, call: int, at_s: float) -> None:
        """Start `call`: into a replica's queue, or past the engine for its fixed time."""
        if at_s >= self.until_s:
            return
        self.start_s[call] = at_s
        number = self.replica[call] = self.route(call)
        if self.mode[call] == ENGINE:
            self.replicas[number].add(self.work[call])
            self.settle(number, at_s)
            return
        if self.mode[call] == HOLD:
            self.replicas[number].used_tokens += self.work[call].prompt
        self.push(at_s + self.fixed_s[call], BESIDE, call)

    def route(self, call: int) -> int:
        """Number of the replica: the session's own while it has room (sticky services), else the least loaded."""
        home = self.home.get(self.session[call], -1) if self.is_sticky else -1
        if home >= 0 and self.replicas[home].load_tokens + self.work[call].prompt <= self.pool_tokens:
            return home
        self.turn += 1
        count = len(self.replicas)
        number = min(range(count), key=lambda n: (self.replicas[n].load_tokens, (n - self.turn) % count))
        if self.is_sticky:
            self.home[self.session[call]] = number
        return number

    def settle(self, number: int, at_s: float) -> None:
        """Bring a replica to `at_s`, note first tokens and ends, and ask to be called when more is due."""
        replica = self.replicas[number]
        replica.advance(at_s)
        first, ended = replica.settle()
        if first is not None:
            self.first_s[first.work.call] = at_s
            self.cached[first.work.call] = first.cached
        for work in ended:
            self.end(work.call, at_s)
        due_s = replica.next_s()
        if due_s < math.inf:
            self.push(due_s, REPLICA, number, replica.version)

    def leave(self, call: int, at_s: float) -> None:
        """End a call that passed beside the engine."""
        if self.mode[call] == HOLD:
            number = self.replica[call]
            self.replicas[number].used_tokens -= self.work[call].prompt
            self.settle(number, at_s)
        self.first_s[call] = at_s
        self.end(call, at_s)

    def end(self, call: int, at_s: float) -> None:
        """Note the end of `call` and start what waited for it: sub-agents, the next call, or the parent's next."""
        self.end_s[call] = at_s
        for head in self.spawned.get(call, ()):
            self.push(at_s + self.gap_s[head], ARRIVAL, head)
        if call in self.spawned:
            return
        waiting = call
        if self.following[call] < 0 and call in self.parent:
            waiting = self.parent[call]
            self.unfinished[waiting] -= 1
            if self.unfinished[waiting]:
                return
        following = self.following[waiting]
        if following >= 0:
            self.push(at_s + self.gap_s[following], ARRIVAL, following)


def _works(calls: Calls, engine: Engine) -> list[Work]:
    chance = calls.uid.astype(np.float64) / 2.0**64
    beside_s = engine.request_overhead_s - engine.request_jitter_s * np.log1p(-chance * (1 - JITTER_CUT_RATIO))
    columns = (
        calls.chain, calls.prompt_tokens, calls.output_tokens, calls.reuse_tokens, calls.shared_tokens, beside_s,
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Work(call, *row) for call, row in enumerate(rows)]


def _heads(calls: Calls, chains: int) -> list[int]:
    """First call of every chain, -1 for a chain without calls."""
    heads = np.full(chains, -1)
    rows, at = np.unique(calls.chain, return_index=True)
    heads[rows] = at
    return [int(head) for head in heads]


def _links(plan: Plan) -> tuple[list[int], dict[int, list[int]], dict[int, int], dict[int, int]]:
    """Next call of each call (-1: none); heads a call spawns; parent by a sub-agent's last call; spawned by parent."""
    chain = plan.calls.chain
    order = np.argsort(chain, kind="stable")
    is_same = chain[order[1:]] == chain[order[:-1]]
    following = np.full(len(chain), -1)
    following[order[:-1][is_same]] = order[1:][is_same]
    spawned: dict[int, list[int]] = {}
    parent_of: dict[int, int] = {}
    lasts = dict(zip(chain[order].tolist(), order.tolist(), strict=True))
    heads = _heads(plan.calls, len(plan.chains))
    for number in np.flatnonzero(plan.chains.parent >= 0).tolist():
        parent = int(plan.chains.parent[number])
        spawned.setdefault(parent, []).append(heads[number])
        parent_of[lasts[number]] = parent
    return following.tolist(), spawned, parent_of, {call: len(heads) for call, heads in spawned.items()}
