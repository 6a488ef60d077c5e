"""What goes wrong: rows put before the call that at last succeeds, as gateway retries or as calls of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.sample.calls import (
    ABORTED,
    CACHED,
    EMBEDDING,
    ENGINE,
    ERROR,
    FALLBACK,
    HEALTH,
    HOLD,
    INSTANT,
    LENGTH,
    LIMITED,
    OK,
    TIMEOUT,
    TOO_LONG,
    UNAVAILABLE,
    Calls,
    Chains,
    Floats,
    Ints,
    Plan,
    Sessions,
    calls_of,
    concatenate,
    join,
    mixed,
    take,
)
from transforms.sample.services import DAY_S, Service

if TYPE_CHECKING:
    from collections.abc import Iterator

HEALTH_EVERY_S, HEALTH_S = 1_800.0, 0.12
"""A health check of each service every half hour, and how long it takes (assumed)."""

FALLBACK_TOKENS_PER_S, FALLBACK_TOKEN_S, FALLBACK_MOST_TOKENS = 25_000.0, 0.011, 30_000
"""How fast the chat's replicas answer what falls back to them: prompt, each token, longest prompt (assumed)."""

INCIDENTS = {"chat": (10 * DAY_S + 13.0 * 3600, 2_400.0), "summariser": (9 * DAY_S + 1.4 * 3600, 1_500.0)}
"""Start and length in s of a bad half hour in which mishaps are INCIDENT_FACTOR times as frequent (assumed)."""

INCIDENT_FACTOR = 12.0


@dataclass(frozen=True)
class Mishap:
    """Failed attempts before a success: what they are, how long each takes, how long the pause after it is, in s."""

    outcomes: tuple[int, ...]
    is_same_call: bool
    mode: int
    fixed_s: tuple[float, float]
    pause_s: tuple[float, float]


@dataclass(frozen=True)
class Extra:
    """Rows to insert: the row each stands before, its place among those there, and the pause after it in s."""

    before: Ints
    place: Ints
    pause_s: Floats
    calls: Calls


def mishaps_of(service: Service) -> dict[str, Mishap]:
    """What can go wrong in `service`, by the name its rate has in `Mishaps` (durations and pauses assumed)."""
    stuck = (service.timeout_s, service.timeout_s + 0.4)
    return {
        "error_retried": Mishap((ERROR,), True, INSTANT, (0.1, 6.0), (0.5, 2.0)),
        "timeout_retried": Mishap((TIMEOUT,), True, HOLD, stuck, (0.5, 2.0)),
        "limit_retried": Mishap((LIMITED,), True, INSTANT, (0.003, 0.02), (1.0, 5.0)),
        "error_given_up": Mishap((UNAVAILABLE,) * 3, False, INSTANT, (0.05, 3.0), (2.0, 20.0)),
        "limit_given_up": Mishap((LIMITED,), False, INSTANT, (0.003, 0.02), (5.0, 60.0)),
        "aborted": Mishap((ABORTED,), False, ENGINE, (0.0, 0.0), (2.0, 25.0)),
        "too_long": Mishap((TOO_LONG,), False, INSTANT, (0.01, 0.05), (5.0, 40.0)),
        "fallback": Mishap((ERROR, TIMEOUT), True, HOLD, stuck, (0.5, 2.0)),
    }


def with_mishaps(plan: Plan, service: Service, rng: np.random.Generator) -> Plan:
    """The `plan` with failed attempts, gateway cache hits, fallbacks and retrieval calls put in."""
    calls = plan.calls
    chance = rng.random(len(calls)) / _incident(plan, service)
    chance[(calls.outcome != OK) & (calls.outcome != LENGTH)] = 1.0
    extras, least = [_retrieval(plan, service, rng)], 0.0
    for name, mishap in mishaps_of(service).items():
        most = least + getattr(service.mishaps, name)
        rows = np.flatnonzero((chance >= least) & (chance < most))
        least = most
        if name == "fallback":
            rows = rows[calls.prompt_tokens[rows] <= FALLBACK_MOST_TOKENS]
            calls = _fallen_back(calls, rows)
        if mishap.is_same_call:
            calls = _changed(calls, rows, attempt=len(mishap.outcomes) + 1)
        extras.extend(_failures(take(plan.calls, rows), rows, mishap, rng))
    hits = np.flatnonzero((chance >= least) & (chance < least + service.mishaps.cached))
    calls = _changed(calls, hits, outcome=CACHED, mode=INSTANT, fixed_s=rng.uniform(0.004, 0.03, len(hits)))
    return _inserted(replace(plan, calls=calls), extras)


def with_health_checks(plan: Plan, identity: int, day: int) -> Plan:
    """The `plan` with the gateway's own checks of one day, each a chain of its own."""
    count = round(DAY_S / HEALTH_EVERY_S)
    number = np.arange(count)
    calls = calls_of(
        count,
        chain=number,
        session=number,
        uid=mixed(identity, number + 2**48),
        outcome=np.full(count, HEALTH),
        mode=np.full(count, INSTANT),
        fixed_s=np.full(count, HEALTH_S),
        prompt_tokens=np.full(count, 8),
        output_tokens=np.full(count, 5),
        limit_tokens=np.full(count, 5),
    )
    starts_s: Floats = day * DAY_S + HEALTH_EVERY_S * (number + 0.5).astype(np.float64)
    chains = Chains(starts_s, np.full(count, -1), np.zeros(count, np.int64))
    sessions = Sessions(mixed(identity, number + 2**49), np.full(count, -1), np.zeros(count, np.int64))
    return join([plan, Plan(sessions, chains, calls)])


def _incident(plan: Plan, service: Service) -> Floats:
    """Factor on the frequency of mishaps, one a row: raised for chains that start in the service's bad half hour."""
    begin_s, length_s = INCIDENTS.get(service.name, (0.0, 0.0))
    since_s = plan.chains.start_s[plan.calls.chain] - begin_s
    return np.where((since_s >= 0) & (since_s < length_s), INCIDENT_FACTOR, 1.0)


def _changed(calls: Calls, rows: Ints, **values: float | Floats) -> Calls:
    """The `calls` with `values` in the chosen `rows`."""
    columns = {name: getattr(calls, name).copy() for name in values}
    for name, value in values.items():
        columns[name][rows] = value
    return replace(calls, **columns)


def _fallen_back(calls: Calls, rows: Ints) -> Calls:
    fixed_s = calls.prompt_tokens / FALLBACK_TOKENS_PER_S + calls.output_tokens * FALLBACK_TOKEN_S
    return _changed(calls, rows, outcome=FALLBACK, mode=INSTANT, fixed_s=fixed_s[rows])


def _failures(calls: Calls, rows: Ints, mishap: Mishap, rng: np.random.Generator) -> Iterator[Extra]:
    """The failed attempts of one `mishap` before each of `calls`, which stand at `rows`."""
    count = len(rows)
    uid = calls.uid if mishap.is_same_call else mixed(calls.uid, np.full(count, 1))
    for place, outcome in enumerate(mishap.outcomes):
        is_quick = mishap.mode == HOLD and outcome != TIMEOUT
        fixed_s = rng.uniform(0.1, 6.0, count) if is_quick else rng.uniform(*mishap.fixed_s, count)
        share = rng.uniform(0.05, 0.9, count) if outcome == ABORTED else np.ones(count)
        failed = replace(
            calls,
            uid=uid,
            attempt=np.full(count, place + 1),
            outcome=np.full(count, outcome),
            mode=np.full(count, INSTANT if is_quick else mishap.mode),
            fixed_s=fixed_s,
            output_tokens=np.maximum(1, calls.output_tokens * share).astype(np.int64),
            tool_calls=np.zeros(count, np.int64),
        )
        yield Extra(rows, np.full(count, place + 1), rng.uniform(*mishap.pause_s, count), failed)


def _retrieval(plan: Plan, service: Service, rng: np.random.Generator) -> Extra:
    """An embedding of the question before the first call of the tenants whose chat looks things up."""
    has_retrieval = np.array([t.has_retrieval for t in service.tenants])[plan.sessions.tenant[plan.calls.session]]
    rows = np.flatnonzero(has_retrieval & (plan.calls.reuse_tokens == 0))
    calls, count = take(plan.calls, rows), len(rows)
    looked_up = calls_of(
        count,
        chain=calls.chain,
        session=calls.session,
        uid=mixed(calls.uid, np.full(count, 2)),
        outcome=np.full(count, EMBEDDING),
        mode=np.full(count, INSTANT),
        fixed_s=rng.uniform(0.02, 0.08, count),
        prompt_tokens=rng.integers(8, 90, count),
    )
    return Extra(rows, np.zeros(count, np.int64), np.full(count, 0.01), looked_up)


def _inserted(plan: Plan, extras: list[Extra]) -> Plan:
    """The `plan` with all `extras` in their places; each group of rows begins when the row it stands before would."""
    base = len(plan.calls)
    calls = concatenate([plan.calls, *(extra.calls for extra in extras)])
    before = np.concatenate([np.arange(base), *(extra.before for extra in extras)])
    place = np.concatenate([np.full(base, 99), *(extra.place for extra in extras)])
    pause_s = np.concatenate([np.zeros(base), *(extra.pause_s for extra in extras)])
    order = np.lexsort((place, before))
    is_first = np.diff(before[order], prepend=-1) != 0
    pauses_s = np.concatenate([[0.0], pause_s[order][:-1]])
    gap_s = np.where(is_first, plan.calls.gap_s[before[order]], pauses_s)
    new_row = np.empty(len(order), np.int64)
    new_row[order] = np.arange(len(order))
    parent = plan.chains.parent
    chains = replace(plan.chains, parent=np.where(parent < 0, -1, new_row[:base][np.maximum(parent, 0)]))
    return replace(plan, chains=chains, calls=replace(take(calls, order), gap_s=gap_s))
