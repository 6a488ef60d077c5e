"""The plan of one service: every attempt as a row of columns, chained to the one whose end it waits for."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Uids = npt.NDArray[np.uint64]
Column = Floats | Ints | Uids
T = TypeVar("T", "Calls", "Chains", "Sessions")

OK, LENGTH, ERROR, UNAVAILABLE, TIMEOUT, LIMITED, TOO_LONG, ABORTED, CACHED, EMBEDDING, HEALTH, FALLBACK = range(12)
"""What became of an attempt (`outcome`)."""

ENGINE, INSTANT, HOLD = range(3)
"""How an attempt passes (`mode`): through the engine, in `fixed_s` beside it, or stuck in it for `fixed_s`."""


@dataclass(frozen=True)
class Calls:
    """Attempts, one a row, those of a chain in order. Tokens are whole; `gap_s` runs from the end of the row before."""

    chain: Ints
    session: Ints
    uid: Uids
    attempt: Ints
    outcome: Ints
    mode: Ints
    gap_s: Floats
    fixed_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    reuse_tokens: Ints
    shared_tokens: Ints
    reasoning_tokens: Ints
    limit_tokens: Ints
    tool_calls: Ints
    tool_results: Ints

    def __len__(self) -> int:
        """Rows."""
        return len(self.chain)


@dataclass(frozen=True)
class Chains:
    """Sequences of attempts: start in s since the first day, or the row whose end starts them (a sub-agent)."""

    start_s: Floats
    parent: Ints
    agent: Ints

    def __len__(self) -> int:
        """Rows."""
        return len(self.start_s)


@dataclass(frozen=True)
class Sessions:
    """Who asks: identity, index of the tenant in the service (-1: the gateway itself), number of the user."""

    uid: Uids
    tenant: Ints
    user: Ints

    def __len__(self) -> int:
        """Rows."""
        return len(self.uid)


@dataclass(frozen=True)
class Plan:
    """What one service does: sessions, their chains, their attempts."""

    sessions: Sessions
    chains: Chains
    calls: Calls


def concatenate(parts: Sequence[T]) -> T:
    """One table with the rows of all `parts`, in order."""
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(parts[0])}
    return type(parts[0])(**columns)


def take(table: T, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> T:
    """The chosen `rows` of `table`."""
    return type(table)(**{f.name: getattr(table, f.name)[rows] for f in fields(table)})


def join(plans: Sequence[Plan]) -> Plan:
    """One plan that holds all `plans` (of one service), their indices moved along."""
    calls, chains, sessions = [], [], []
    at_call, at_chain, at_session = 0, 0, 0
    for plan in plans:
        calls.append(
            replace(plan.calls, chain=plan.calls.chain + at_chain, session=plan.calls.session + at_session),
        )
        chains.append(replace(plan.chains, parent=np.where(plan.chains.parent < 0, -1, plan.chains.parent + at_call)))
        sessions.append(plan.sessions)
        at_call, at_chain = at_call + len(plan.calls), at_chain + len(plan.chains)
        at_session += len(plan.sessions)
    return Plan(concatenate(sessions), concatenate(chains), concatenate(calls))


def mixed(seed: int | Uids, number: Ints | Uids) -> Uids:
    """Identity of each `number` under `seed`: 64 well mixed bits (splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(seed).astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def calls_of(rows: int, **columns: Column) -> Calls:
    """`rows` attempts with the given columns; what is not given is 0, attempts are first ones."""
    values: dict[str, Column] = {"attempt": np.ones(rows, np.int64), "uid": np.zeros(rows, np.uint64), **columns}
    for column in fields(Calls):
        if column.name not in values:
            is_time = column.name.endswith("_s")
            values[column.name] = np.zeros(rows, np.float64) if is_time else np.zeros(rows, np.int64)
    return Calls(**values)  # type: ignore[arg-type]
