"""The coding agent: long sessions whose context grows turn by turn, tool waits, compaction, sub-agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from transforms.sample.calls import LENGTH, OK, Calls, Chains, Plan, Sessions, calls_of, mixed
from transforms.sample.published import (
    AGENT_FIRST_TOKENS,
    AGENT_GROWTH_TOKENS,
    AGENT_OUTPUT_TOKENS,
    AGENT_SYSTEM_TOKENS,
    AGENT_TURNS,
    AGENT_USER_TURN_RATIO,
    AGENT_USER_WAIT_S,
    SUBAGENT_TURNS,
    TOOL_WAIT_S,
    draw,
    draw_tokens,
    spread,
)
from transforms.sample.rhythm import OFFICE_HOURS, OFFICE_WEEK, session_starts
from transforms.sample.services import AGENT, week_of

SESSIONS_PER_DAY = 300.0
"""Sessions of a mean working day in the first week, of 185 developers (assumed)."""

SUBAGENT_RATIO = 0.005
"""Share of tool turns that start sub-agents; more than kv-cache-tester has, as newer tools do (assumed)."""

SUBAGENT_SYSTEM_TOKENS, SUBAGENT_TASK_TOKENS = 7_000, 1_200
"""Tools and instructions of a sub-agent, and its task (assumed: a part of the parent's)."""

PARALLEL_SHARES = (0.86, 0.08, 0.04, 0.02)
"""Shares of tool turns that ask for 1, 2, 3, 4 tools at once (assumed)."""

REASONING_RATIO, REASONING_LEAST_RATIO, REASONING_MOST_RATIO = 0.45, 0.2, 0.7
"""Share of turns that think first, and the share of their output that thinking takes (assumed)."""

SUMMARY_TOKENS, RESTORED_TOKENS = (1_200, 3_500), (4_000, 16_000)
"""After a compaction the context is system, a summary of this many tokens and files read again (assumed)."""

AT_ONCE_S = 0.2
"""The client's own time between two calls when nothing is waited for (assumed)."""

LEAST_MESSAGE_TOKENS = 30
CONTEXT_TOKENS = AGENT.engine.max_model_len


class Turn(NamedTuple):
    """What chance gives one turn."""

    output: int
    growth: int
    tool_wait_s: float
    user_wait_s: float
    is_user: bool
    tools: int
    reasoning_ratio: float
    subagents: int
    subagent_turns: int
    summary: int
    restored: int


class Row(NamedTuple):
    """One planned call; the fields are columns of `Calls`."""

    chain: int
    session: int
    outcome: int
    gap_s: float
    prompt_tokens: int
    output_tokens: int
    reuse_tokens: int
    shared_tokens: int
    reasoning_tokens: int
    limit_tokens: int
    tool_calls: int
    tool_results: int


class Line(NamedTuple):
    """One chain of a session: where it starts, and the caller's limit of output tokens."""

    chain: int
    session: int
    limit: int


@dataclass
class Walk:
    """Rows and chains of the sessions walked so far, and the turns still to be used."""

    turns: list[Turn]
    compact_at_tokens: int
    rows: list[Row] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    agents: list[int] = field(default_factory=list)
    at: int = 0

    def turn(self) -> Turn:
        """The next turn; the list begins anew when it is used up."""
        self.at = (self.at + 1) % len(self.turns)
        return self.turns[self.at]

    def chain(self, start_s: float, parent: int, agent: int) -> int:
        """Index of a new chain."""
        self.starts_s.append(start_s)
        self.parents.append(parent)
        self.agents.append(agent)
        return len(self.starts_s) - 1


@dataclass
class Context:
    """What the next prompt of a chain holds, in tokens."""

    prompt: int
    shared: int
    reuse: int = 0
    gap_s: float = 0.0
    results: int = 0


def plan_agents(rng: np.random.Generator, identity: int, day: int, scale: float) -> Plan:
    """All agent sessions that start on `day`, sub-agents included; about `scale` × SESSIONS_PER_DAY of them."""
    week = week_of(AGENT, day)
    starts = session_starts(rng, day, SESSIONS_PER_DAY * week.sessions_factor * scale, OFFICE_HOURS, OFFICE_WEEK)
    count = len(starts)
    tenants = AGENT.tenants
    tenant = rng.choice(len(tenants), count, p=[t.share_ratio for t in tenants])
    user = (np.array([t.users for t in tenants])[tenant] * rng.random(count)).astype(np.int64)
    lengths = draw_tokens(AGENT_TURNS, spread(rng, count))
    firsts = draw_tokens(AGENT_FIRST_TOKENS, rng.random(count))
    walk = Walk(_turns(rng, int(lengths.sum() * 1.25) + 64), int(CONTEXT_TOKENS * week.compact_at_ratio))
    for session in range(count):
        limit = tenants[int(tenant[session])].limit_tokens
        line = Line(walk.chain(float(starts[session]), -1, 0), session, limit)
        _walk_session(walk, line, int(lengths[session]), int(firsts[session]))
    calls = _calls(walk.rows, identity)
    chains = Chains(np.array(walk.starts_s), np.array(walk.parents, np.int64), np.array(walk.agents, np.int64))
    return Plan(Sessions(mixed(identity, np.arange(count)), tenant, user), chains, calls)


def _turns(rng: np.random.Generator, count: int) -> list[Turn]:
    columns = (
        draw_tokens(AGENT_OUTPUT_TOKENS, rng.random(count)),
        draw_tokens(AGENT_GROWTH_TOKENS, rng.random(count)),
        draw(TOOL_WAIT_S, rng.random(count)),
        draw(AGENT_USER_WAIT_S, rng.random(count)),
        rng.random(count) < AGENT_USER_TURN_RATIO,
        rng.choice(len(PARALLEL_SHARES), count, p=PARALLEL_SHARES) + 1,
        np.where(
            rng.random(count) < REASONING_RATIO,
            rng.uniform(REASONING_LEAST_RATIO, REASONING_MOST_RATIO, count),
            0.0,
        ),
        np.where(rng.random(count) < SUBAGENT_RATIO, rng.integers(1, 4, count), 0),
        draw_tokens(SUBAGENT_TURNS, rng.random(count)),
        rng.integers(*SUMMARY_TOKENS, count),
        rng.integers(*RESTORED_TOKENS, count),
    )
    return [Turn(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def _walk_session(walk: Walk, line: Line, turns: int, first: int) -> None:
    context = Context(prompt=first, shared=min(AGENT_SYSTEM_TOKENS, first - LEAST_MESSAGE_TOKENS))
    turn = walk.turn()
    for left in range(turns - 1, -1, -1):
        following = walk.turn()
        tools = 0 if left == 0 or following.is_user else turn.tools
        subagents = turn.subagents if tools else 0
        _add(walk, line, context, turn, subagents or tools)
        parent = len(walk.rows) - 1
        for number in range(subagents):
            _walk_subagent(walk, line, parent, 16 * parent + number + 1, turn.subagent_turns)
        _grow(context, walk.rows[parent], following, AT_ONCE_S if subagents else turn.tool_wait_s)
        if left and context.prompt > walk.compact_at_tokens:
            _compact(walk, line, context, turn)
        turn = following


def _walk_subagent(walk: Walk, main: Line, parent: int, agent: int, turns: int) -> None:
    line = main._replace(chain=walk.chain(float("nan"), parent, agent))
    context = Context(SUBAGENT_SYSTEM_TOKENS + SUBAGENT_TASK_TOKENS, SUBAGENT_SYSTEM_TOKENS, gap_s=AT_ONCE_S)
    for left in range(turns - 1, -1, -1):
        turn = walk.turn()
        _add(walk, line, context, turn, turn.tools if left else 0)
        _grow(context, walk.rows[-1], turn._replace(is_user=False), turn.tool_wait_s)
        if context.prompt > walk.compact_at_tokens:
            break


def _add(walk: Walk, line: Line, context: Context, turn: Turn, tools: int) -> None:
    """Append the call that sends `context` and asks for `tools`."""
    room = min(line.limit, CONTEXT_TOKENS - context.prompt)
    output = min(turn.output, room)
    walk.rows.append(
        Row(
            line.chain,
            line.session,
            OK if turn.output <= room else LENGTH,
            context.gap_s,
            context.prompt,
            output,
            context.reuse,
            context.shared,
            int(output * turn.reasoning_ratio),
            line.limit,
            tools,
            context.results,
        )
    )


def _grow(context: Context, row: Row, following: Turn, tool_wait_s: float) -> None:
    """Make `context` the prompt after `row`: its answer, then tool results or what the user typed."""
    context.reuse = row.prompt_tokens + row.output_tokens
    context.prompt = context.reuse + max(LEAST_MESSAGE_TOKENS, following.growth - row.output_tokens)
    context.results = row.tool_calls
    context.gap_s = tool_wait_s if row.tool_calls else following.user_wait_s


def _compact(walk: Walk, line: Line, context: Context, turn: Turn) -> None:
    """Append the call that summarises `context`, and shrink it to system, summary and files read again."""
    context.prompt = min(context.prompt, CONTEXT_TOKENS - turn.summary)
    context.reuse = min(context.reuse, context.prompt)
    _add(walk, line, context, turn._replace(output=turn.summary, reasoning_ratio=0.0), 0)
    context.prompt = context.shared + turn.summary + turn.restored
    context.reuse, context.results, context.gap_s = 0, 0, AT_ONCE_S


def _calls(rows: list[Row], identity: int) -> Calls:
    if not rows:
        return calls_of(0)
    columns = {name: np.array(values) for name, values in zip(Row._fields, zip(*rows, strict=True), strict=True)}
    return calls_of(len(rows), uid=mixed(identity, np.arange(len(rows)) + 2**32), **columns)
