"""Which replica takes an arrival."""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.lru import OFF
from transforms.planner.kernel.prefix import found
from transforms.planner.kernel.step import advance
from transforms.planner.kernel.tables import replica_at, whole_at

ROUND_ROBIN, RANDOM, LEAST_OUTSTANDING, SESSION_AFFINITY, PREFIX_AFFINITY = 0, 1, 2, 3, 4


@inner
def drawn(seed, request, replicas):
    """Replica 0 … replicas − 1 by splitmix64 of the seed and the request's number."""
    mixed = seed + np.uint64(0x9E3779B97F4A7C15) * (np.uint64(request) + np.uint64(1))
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return np.int64(mixed % np.uint64(replicas))


@inner
def outstanding(replica, at):
    """Requests in a replica at a moment that its current step may not have reached the end of."""
    return replica.outstanding + (replica.left_now if replica.clock > at else 0)


@inner
def next_on(s, number):
    """Replica `number`, or the next in turn that takes arrivals."""
    while replica_at(s.replicas, number).is_off:
        number = number + 1 if number + 1 < s.replica_count else 0
    return number


@inner
def drawn_on(s, request):
    """Replica drawn among those that take arrivals."""
    number = drawn(s.seed, request, s.on_count)
    if s.on_count < s.replica_count:
        further, number = number, next_on(s, 0)
        for _ in range(further):
            number = next_on(s, (number + 1) % s.replica_count)
    return number


@inner
def least(s, at):
    """Replica with the fewest requests: the first of equals, or the next in turn where they have caches to fill."""
    start = next_on(s, s.next_replica if s.caching != OFF else 0)
    best, fewest = start, outstanding(replica_at(s.replicas, start), at)
    for further in range(1, s.replica_count):
        number = (start + further) % s.replica_count
        if replica_at(s.replicas, number).is_off:
            continue
        count = outstanding(replica_at(s.replicas, number), at)
        if count < fewest:
            best, fewest = number, count
    s.next_replica = (best + 1) % s.replica_count
    return best


@once
def longest_prefix(s, request, at):
    """Replica with the longest cached prefix, of equals the one with the fewest requests, unless it is far behind."""
    fewest = least(s, at)
    best, most, count = fewest, 0, outstanding(replica_at(s.replicas, fewest), at)
    limit = count + s.slack
    for number in range(s.replica_count):
        if replica_at(s.replicas, number).is_off:
            continue
        tokens, _, _ = found(s, number, request, np.int64(whole_at(s.prompts, request).v))
        own = outstanding(replica_at(s.replicas, number), at)
        if tokens > most or (tokens == most and (own < count or (own == count and number == fewest))):
            best, most, count = number, tokens, own
    return best if count <= limit else fewest


@once
def route(s, request, at):
    """Replica that takes `request` at time `at`, its steps before that run."""
    number = 0
    if s.router == ROUND_ROBIN:
        number = next_on(s, s.next_replica)
        s.next_replica = number + 1 if number + 1 < s.replica_count else 0
    elif s.router == RANDOM:
        number = drawn_on(s, request)
    elif (
        s.router == SESSION_AFFINITY
        and whole_at(s.sessions, request).v >= 0
        and whole_at(s.homes, whole_at(s.sessions, request).v).v >= 0
        and not replica_at(s.replicas, whole_at(s.homes, whole_at(s.sessions, request).v).v).is_off
    ):
        number = whole_at(s.homes, whole_at(s.sessions, request).v).v
    else:
        for each in range(s.replica_count):
            advance(s, each, at)
        if s.router == PREFIX_AFFINITY and s.caching != OFF:
            return longest_prefix(s, request, at)
        number = least(s, at)
        if s.router == SESSION_AFFINITY and whole_at(s.sessions, request).v >= 0:
            whole_at(s.homes, whole_at(s.sessions, request).v).v = number
        return number
    advance(s, number, at)
    return number
