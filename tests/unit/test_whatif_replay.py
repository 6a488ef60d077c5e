"""The replay's own refusals and cuts agree with the bookkeeping of max_model_len, request by request."""

from __future__ import annotations

import numpy as np
import pytest

from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_types import Pool, RequestedRule, Settings, Status, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.whatif.context_limit import Fate, LimitRules, Turns, limited

STEP = StepCosts(0.0, 0.0, 0.0, 0.0, 0.0, step_s=0.01)
LIMIT = 400
STATUS = {
    Fate.SERVED: Status.COMPLETED,
    Fate.PROMPT_TOO_LONG: Status.PROMPT_TOO_LONG,
    Fate.REQUESTED_TOO_LONG: Status.REQUESTED_TOO_LONG,
    Fate.LOST: Status.NOT_SENT,
}


def sessions(seed: int) -> tuple[Turns, TraceColumns]:
    """Sessions of one agent each, whose turns come one after the other, interleaved in the order of arrival."""
    random = np.random.default_rng(seed)
    session = random.integers(0, 30, 300)
    count = len(session)
    arrived_s = np.arange(count, dtype=np.float64)
    prompt, output = random.integers(1, 480, count), random.integers(1, 120, count)
    requested = random.choice([-1, 20, 150], count)
    parent = np.full(count, -1, dtype=np.int32)
    latest: dict[int, int] = {}
    for row, number in enumerate(session.tolist()):
        parent[row] = latest.get(number, -1)
        latest[number] = row
    none = np.zeros(count, dtype=np.bool_)
    turns = Turns(prompt, output, requested, session, np.zeros(count, dtype=np.int64), none, ~none)
    trace = TraceColumns(
        arrived_s=arrived_s,
        prompt_tokens=prompt.astype(np.int32),
        output_tokens=output.astype(np.int32),
        requested_tokens=requested.astype(np.int32),
        parent=parent,
        delay_s=np.full(count, 0.5),
        from_start=none,
    )
    return turns, trace


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("word", "rule"), [("reject", RequestedRule.REJECT), ("clamp", RequestedRule.CLAMP)])
def test_the_replay_refuses_cuts_and_loses_the_same(seed: int, word: str, rule: RequestedRule) -> None:
    turns, trace = sessions(seed)
    engine = Settings(Pool(4000), max_num_seqs=16, max_num_batched_tokens=256, max_model_len=LIMIT, requested_rule=rule)
    result = replay(trace, engine, STEP)
    found = limited(turns, LimitRules(LIMIT, requested_output=word))
    assert {Fate.SERVED, Fate.PROMPT_TOO_LONG, Fate.LOST} <= set(found.fate.tolist())
    assert result.status.tolist() == [STATUS[Fate(fate)] for fate in found.fate]
    own_limit = np.where(turns.requested_tokens >= 0, turns.requested_tokens, LIMIT)
    served = found.is_served
    assert (result.output_tokens[served] <= found.output_tokens[served]).all()
    within = served & (turns.output_tokens <= own_limit)
    assert result.output_tokens[within].tolist() == found.output_tokens[within].tolist()
