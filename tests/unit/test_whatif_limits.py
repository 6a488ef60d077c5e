"""max_model_len as exact bookkeeping: who is refused, cut and lost, against a plain walk through each session."""

from __future__ import annotations

import numpy as np
import pytest

from transforms.planner.whatif.context_limit import Fate, LimitRules, Turns, limited
from transforms.planner.whatif.limit_counts import limit_counts, log_clamps, raised_limit

SERVED, TOO_LONG, ASKED_TOO_LONG, LOST = Fate.SERVED, Fate.PROMPT_TOO_LONG, Fate.REQUESTED_TOO_LONG, Fate.LOST


def turns(prompt, output, *, requested=None, session=None, agent=None, refused=None, answered=None):
    """Requests of one session, unless told otherwise."""
    count = len(prompt)
    whole = {
        "requested_tokens": requested or [-1] * count,
        "session": session or [0] * count,
        "agent": agent or [0] * count,
    }
    flags = {"was_refused": refused or [False] * count, "was_answered": answered or [True] * count}
    return Turns(
        prompt_tokens=np.array(prompt, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        **{name: np.array(values, dtype=np.int64) for name, values in whole.items()},
        **{name: np.array(values, dtype=np.bool_) for name, values in flags.items()},
    )


def counted(asked, limit, **rules):
    found = limited(asked, LimitRules(limit, **rules))
    return found, limit_counts(asked, found, LimitRules(limit, **rules))


def test_a_prompt_of_the_limit_is_refused_and_one_token_less_gets_one_token() -> None:
    asked = turns([99, 100, 50], [5, 5, 60], session=[0, 1, 2])
    found, counts = counted(asked, 100)
    assert found.fate.tolist() == [SERVED, TOO_LONG, SERVED]
    assert found.output_tokens.tolist() == [1, 0, 50]
    assert (counts["rejected_requests"], counts["truncated_requests"]) == (1, 2)
    assert (counts["lost_cut_tokens"], counts["lost_truncated_tokens"]) == (5, 4 + 10)
    assert counts["served_output_ratio"] == 51 / 70


def test_a_refused_turn_ends_its_session_and_a_refused_sub_agents_only_the_sub_agent() -> None:
    agent = [0, 1, 1, 1, 0, 2, 0, 0]
    asked = turns([10, 10, 100, 20, 30, 10, 100, 40], [1, 2, 4, 8, 16, 32, 64, 128], agent=agent)
    found, counts = counted(asked, 100)
    assert found.fate.tolist() == [SERVED, SERVED, TOO_LONG, LOST, SERVED, SERVED, TOO_LONG, LOST]
    assert (counts["rejected_requests"], counts["lost_requests"], counts["sessions_cut"]) == (1, 1, 1)
    assert counts["lost_cut_tokens"] == 64 + 128
    assert (counts["sub_agent_rejected_requests"], counts["sub_agent_lost_requests"]) == (1, 1)
    assert counts["sub_agent_lost_tokens"] == 4 + 8


def test_a_request_without_a_session_ends_nothing() -> None:
    found, counts = counted(turns([200, 10, 10], [1, 1, 1], session=[-1, -1, 0]), 100)
    assert found.fate.tolist() == [TOO_LONG, SERVED, SERVED]
    assert (counts["rejected_requests"], counts["sessions_cut"]) == (1, 0)


def test_what_followed_a_refusal_in_the_log_is_in_the_log() -> None:
    """And under a higher limit the refused prompt is served with its known length."""
    asked = turns([10, 120, 40], [1, 2, 4], refused=[False, True, False])
    assert limited(asked, LimitRules(100)).fate.tolist() == [SERVED, TOO_LONG, SERVED]
    assert limited(asked, LimitRules(130)).fate.tolist() == [SERVED, SERVED, SERVED]


def test_the_callers_limit_is_refused_or_clamped_and_the_saving_is_stated() -> None:
    asked = turns([60, 60, 60], [10, 50, 7], requested=[40, 41, 10])
    found, counts = counted(asked, 100)
    assert found.fate.tolist() == [SERVED, ASKED_TOO_LONG, LOST]
    assert (counts["requested_too_long_requests"], counts["prompt_too_long_requests"]) == (1, 0)
    assert (counts["clamp_saves_requests"], counts["clamp_saves_tokens"]) == (2, 40 + 7)
    found, counts = counted(asked, 100, requested_output="clamp")
    assert found.fate.tolist() == [SERVED] * 3
    assert found.output_tokens.tolist() == [10, 40, 7]
    assert (counts["clamped_requests"], counts["truncated_requests"], counts["rejected_requests"]) == (1, 1, 0)
    assert counts["clamp_saves_requests"] == 0


def test_a_compacted_context_stays_compacted_until_the_log_starts_a_new_one() -> None:
    asked = turns([80, 110, 130, 180, 20, 40], [1] * 6)
    found, counts = counted(asked, 100, rejected_turn="compact", compact_ratio=0.5)
    assert found.prompt_tokens.tolist() == [80, 50, 70, 50, 20, 40]
    assert found.is_compacted.tolist() == [False, True, False, True, False, False]
    assert found.is_served.all()
    assert (counts["compacted_requests"], counts["rejected_requests"], counts["lost_requests"]) == (2, 0, 0)


def test_compaction_does_not_help_a_caller_who_asks_for_more_than_the_limit() -> None:
    found, _ = counted(turns([60, 70], [1, 1], requested=[90, 10]), 100, rejected_turn="compact")
    assert found.fate.tolist() == [ASKED_TOO_LONG, LOST]


def test_no_limit_changes_nothing() -> None:
    found = limited(turns([10**6], [5]), LimitRules(None))
    assert (found.fate.tolist(), found.output_tokens.tolist()) == ([SERVED], [5])


def test_a_higher_limit_says_how_many_outputs_could_go_on_and_the_most_they_could_add() -> None:
    """Ended by today's limit of 100: the first two; the second caller wanted no more than 45."""
    asked = turns([60, 60, 60], [40, 40, 10], requested=[-1, 45, -1])
    assert raised_limit(asked, 100, 150) == {"extendable_requests": 2, "extension_max_tokens": 50 + 5}
    assert raised_limit(asked, 100, 100) == {"extendable_requests": 0, "extension_max_tokens": 0}


def test_a_log_that_served_what_does_not_fit_shows_a_front_end_that_clamps() -> None:
    assert log_clamps(turns([60], [10], requested=[50]), 100)
    assert not log_clamps(turns([60], [10], requested=[40]), 100)
    assert not log_clamps(turns([60], [10], requested=[50], answered=[False]), 100)


def walked(asked: Turns, limit: int) -> tuple[list[int], list[int]]:
    """Fates and outputs by walking request after request: slow, and obviously the rule."""
    over, gone = set(), set()
    fates, outputs = [], []
    for row in range(len(asked.prompt_tokens)):
        prompt, output, requested = (
            int(values[row]) for values in (asked.prompt_tokens, asked.output_tokens, asked.requested_tokens)
        )
        session, agent = int(asked.session[row]), int(asked.agent[row])
        if session >= 0 and (session in over or (session, agent) in gone):
            fate = LOST
        elif prompt >= limit:
            fate = TOO_LONG
        elif requested >= 0 and prompt + requested > limit:
            fate = ASKED_TOO_LONG
        else:
            fate = SERVED
        if fate in {TOO_LONG, ASKED_TOO_LONG} and session >= 0:
            (gone.add((session, agent)) if agent else over.add(session))
        fates.append(int(fate))
        outputs.append(min(output, limit - prompt) if fate == SERVED else 0)
    return fates, outputs


@pytest.mark.parametrize("seed", range(20))
def test_random_sessions_agree_with_a_plain_walk(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = 400
    session = random.integers(-1, 20, count)
    agent = np.where((session >= 0) & (random.random(count) < 0.3), session * 3 + random.integers(1, 4, count), 0)
    asked = turns(
        random.integers(1, 130, count),
        random.integers(0, 60, count),
        requested=random.choice([-1, 10, 40], count).tolist(),
        session=session.tolist(),
        agent=agent.tolist(),
    )
    found = limited(asked, LimitRules(100))
    assert (found.fate.tolist(), found.output_tokens.tolist()) == walked(asked, 100)
