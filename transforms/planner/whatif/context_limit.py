"""What one max_model_len refuses, cuts and ends, exactly: from lengths and order alone, no clock (planner.md §5).

The engine refuses a prompt of max_model_len tokens or more; its front end refuses, or clamps, a caller's limit that
does not fit behind the prompt; an output ends where prompt and output reach max_model_len. A refused turn ends its
session (a sub-agent's only the sub-agent), or the client compacts the context and sends it again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Wholes = NDArray[np.int64]
    Flags = NDArray[np.bool_]

NONE = -1
"""A session or a caller's limit that is not known."""

REQUESTED = ("reject", "clamp", "ignore")
REJECTED_TURNS = ("abort", "compact")


class Fate(IntEnum):
    """What becomes of a request; those above SERVED never reach the engine's batch."""

    SERVED = 0
    PROMPT_TOO_LONG = 1
    REQUESTED_TOO_LONG = 2
    LOST = 3
    """Never sent: its session, or its sub-agent, ended before."""


@dataclass(frozen=True, eq=False)
class Turns:
    """Requests in the order of arrival, one element each."""

    prompt_tokens: Wholes
    output_tokens: Wholes
    """What the model says without a limit."""
    requested_tokens: Wholes
    """The caller's own limit; NONE where unknown."""
    session: Wholes
    """Number of the session; NONE for a request without one."""
    agent: Wholes
    """Number of the sub-agent inside its session; 0 outside sub-agents."""
    was_refused: Flags
    """The log has it as refused: what came after it is in the log."""
    was_answered: Flags

    def at(self, rows: NDArray[np.int64] | Flags) -> Turns:
        """The chosen rows."""
        return Turns(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True)
class LimitRules:
    """One max_model_len (None: no limit) and what follows a refusal."""

    max_model_len: int | None
    requested_output: str = "reject"
    rejected_turn: str = "abort"
    compact_ratio: float = 0.5
    """Share of max_model_len that a compacted context keeps."""


@dataclass(frozen=True, eq=False)
class Limited:
    """What the rules make of Turns, one element each."""

    fate: NDArray[np.int8]
    """A `Fate`."""
    prompt_tokens: Wholes
    """As sent: shorter where the context was compacted before."""
    output_tokens: Wholes
    """Made: 0 where it was not served."""
    is_clamped: Flags
    """Served below the caller's own limit, because that does not fit behind the prompt."""
    is_compacted: Flags
    """Refused as it was, and sent again with a compacted context."""

    @property
    def is_served(self) -> Flags:
        """Whether the engine takes it."""
        served: Flags = self.fate == Fate.SERVED
        return served


def limited(turns: Turns, rules: LimitRules) -> Limited:
    """Fate, prompt and output of each of `turns` under `rules`."""
    count, limit = len(turns.prompt_tokens), rules.max_model_len
    if limit is None:
        none = np.zeros(count, dtype=np.bool_)
        fate = np.zeros(count, dtype=np.int8)
        return Limited(fate, turns.prompt_tokens, turns.output_tokens, none, none)
    if rules.rejected_turn == "compact":
        prompt, is_compacted = _compacted(turns, rules, limit)
    else:
        prompt, is_compacted = turns.prompt_tokens, np.zeros(count, dtype=np.bool_)
    fate = _refused(replace(turns, prompt_tokens=prompt), rules, limit)
    fate[_after_refusal(turns, fate)] = Fate.LOST
    is_served = fate == Fate.SERVED
    room = np.maximum(limit - prompt, 0)
    output = np.where(is_served, np.minimum(turns.output_tokens, room), 0)
    is_clamped = is_served & (turns.requested_tokens > room) & (rules.requested_output == "clamp")
    return Limited(fate, prompt, output, is_clamped, is_compacted & is_served)


def _refused(turns: Turns, rules: LimitRules, limit: int) -> NDArray[np.int8]:
    """Fate of each request looked at by itself."""
    fate = np.zeros(len(turns.prompt_tokens), dtype=np.int8)
    if rules.requested_output == "reject":
        fate[turns.prompt_tokens + turns.requested_tokens > limit] = Fate.REQUESTED_TOO_LONG
        fate[turns.requested_tokens < 0] = Fate.SERVED
    fate[turns.prompt_tokens >= limit] = Fate.PROMPT_TOO_LONG
    return fate


def _after_refusal(turns: Turns, fate: NDArray[np.int8]) -> Flags:
    """Requests after the first refusal that ends their session, or their sub-agent.

    One that the log has as refused too ends nothing: whatever it ended is not in the log.
    """
    rows = np.arange(len(fate))
    ends = (fate != Fate.SERVED) & ~turns.was_refused & (turns.session != NONE)
    lost = rows > _first(rows, ends & (turns.agent == 0), turns.session)
    is_sub = (turns.agent > 0) & (turns.session != NONE)
    line = np.where(is_sub, turns.agent, NONE)
    after: Flags = lost | (is_sub & (rows > _first(rows, ends & is_sub & ~lost, line)))
    return after


def _first(rows: Wholes, chosen: Flags, group: Wholes) -> Wholes:
    """For each row the first chosen row of its group; beyond all rows where there is none, or no group."""
    firsts = np.full(int(group.max(initial=NONE)) + 2, len(rows), dtype=np.int64)
    np.minimum.at(firsts, group[chosen], rows[chosen])
    firsts[NONE] = len(rows)
    return firsts[group]


def _compacted(turns: Turns, rules: LimitRules, limit: int) -> tuple[Wholes, Flags]:
    """Prompts as sent, and whether the context had to be compacted just then.

    What a compaction took away stays away until the log's own prompt becomes shorter, which is a context of its own.
    """
    prompt, is_compacted = turns.prompt_tokens.copy(), np.zeros(len(turns.prompt_tokens), dtype=np.bool_)
    target = max(1, int(rules.compact_ratio * limit))
    alone = _refused(turns, rules, limit) != Fate.SERVED
    line = np.where(turns.agent > 0, turns.agent + turns.session.max(initial=0) + 1, turns.session)
    hit = np.unique(line[alone & (turns.session != NONE)])
    members = np.flatnonzero(np.isin(line, hit) & (turns.session != NONE))
    gone: dict[int, int] = {}
    before: dict[int, int] = {}
    for row in members[np.argsort(line[members], kind="stable")]:
        key, logged = int(line[row]), int(turns.prompt_tokens[row])
        taken = 0 if logged < before.get(key, 0) else gone.get(key, 0)
        asked = max(0, int(turns.requested_tokens[row])) if rules.requested_output == "reject" else 0
        before[key] = logged
        if logged - taken >= limit or logged - taken + asked > limit:
            taken, is_compacted[row] = max(taken, logged - target), True
        gone[key], prompt[row] = taken, logged - taken
    return prompt, is_compacted
