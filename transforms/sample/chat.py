"""The chat service: short sessions, the history in every prompt, answers of a few hundred tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transforms.sample.calls import (
    LENGTH,
    OK,
    Calls,
    Chains,
    Ints,
    Plan,
    Sessions,
    calls_of,
    mixed,
)
from transforms.sample.published import (
    CHAT_MESSAGE_TOKENS_MEAN,
    CHAT_OUTPUT_TOKENS,
    CHAT_PROMPT_TOKENS,
    CHAT_TURNS_MEAN,
    draw_tokens,
)
from transforms.sample.rhythm import CONSUMER_HOURS, CONSUMER_WEEK, burst_starts, session_starts
from transforms.sample.services import CHAT, DAY_S, week_of

SESSIONS_PER_DAY = 3_700.0
"""Sessions of a mean working day in the first week (assumed)."""

SYSTEM_TOKENS = 180
"""The part of every prompt that never changes (assumed)."""

FIRST_PROMPT_FACTOR = 0.85
"""First prompts are shorter than the published ones, so that with the longer later turns all of them match."""

THINK_MEDIAN_S, THINK_SIGMA = 35.0, 1.1
"""Log-normal think time between an answer and the next message (assumed)."""

MAILING_DAYS, MAILING_HOUR, MAILING_SESSIONS, MAILING_DECAY_S = (1, 3), 10.0, 420.0, 90.0
"""Tuesdays and Thursdays at 10:00 UTC a mailing sends several hundred people within minutes (assumed)."""


def plan_chat(rng: np.random.Generator, identity: int, day: int, scale: float) -> Plan:
    """All sessions of the chat that start on `day`; about `scale` × SESSIONS_PER_DAY of them."""
    week = week_of(CHAT, day)
    mean = SESSIONS_PER_DAY * week.sessions_factor * scale
    starts = session_starts(rng, day, mean, CONSUMER_HOURS, CONSUMER_WEEK)
    if day % 7 in MAILING_DAYS:
        at_s = day * DAY_S + MAILING_HOUR * 3600
        starts = np.sort(np.concatenate([starts, burst_starts(rng, at_s, MAILING_SESSIONS * scale, MAILING_DECAY_S)]))
    count = len(starts)
    turns = rng.geometric(1 / CHAT_TURNS_MEAN, count)
    sessions = sessions_of(rng, identity, count)
    calls = _turns(rng, identity, sessions, turns, week.prompt_factor)
    return Plan(sessions, Chains(starts, np.full(count, -1), np.zeros(count, np.int64)), calls)


def sessions_of(rng: np.random.Generator, identity: int, count: int) -> Sessions:
    """`count` sessions of the chat's tenants and their users; few users come often."""
    tenants = CHAT.tenants
    tenant = rng.choice(len(tenants), count, p=[t.share_ratio for t in tenants])
    users = np.array([t.users for t in tenants])[tenant]
    return Sessions(mixed(identity, np.arange(count)), tenant, (users * rng.random(count) ** 2).astype(np.int64))


def _turns(rng: np.random.Generator, identity: int, sessions: Sessions, turns: Ints, prompt_factor: float) -> Calls:
    rows = int(turns.sum())
    session = np.repeat(np.arange(len(turns)), turns)
    is_first = np.diff(session, prepend=-1) != 0
    limit = np.array([t.limit_tokens for t in CHAT.tenants])[sessions.tenant][session]
    wanted = draw_tokens(CHAT_OUTPUT_TOKENS, rng.random(rows))
    output = np.minimum(wanted, limit)
    first = draw_tokens(CHAT_PROMPT_TOKENS, rng.random(rows), FIRST_PROMPT_FACTOR * prompt_factor) + SYSTEM_TOKENS
    message = 1 + rng.exponential(CHAT_MESSAGE_TOKENS_MEAN, rows).astype(np.int64)
    held = np.where(is_first, 0, np.concatenate([[0], output[:-1]]) + message)
    prompt = _within_session(np.where(is_first, first, held), is_first)
    gap = np.where(is_first, 0.0, THINK_MEDIAN_S * np.exp(THINK_SIGMA * rng.standard_normal(rows)))
    return calls_of(
        rows,
        chain=session,
        session=session,
        uid=mixed(identity, np.arange(rows) + 2**32),
        outcome=np.where(wanted > limit, LENGTH, OK),
        gap_s=gap,
        prompt_tokens=prompt,
        output_tokens=output,
        reuse_tokens=np.where(is_first, 0, prompt - message),
        shared_tokens=np.full(rows, SYSTEM_TOKENS),
        limit_tokens=limit,
    )


def _within_session(increments: Ints, is_first: npt.NDArray[np.bool_]) -> Ints:
    """Running sum of `increments` that begins anew at every first turn."""
    total = np.cumsum(increments)
    starts = np.flatnonzero(is_first)
    before = (total - increments)[starts]
    return total - np.repeat(before, np.diff(np.append(starts, len(increments))))
