"""The macro is_lever against the settings that a what-if knows: a new one must be said to be a lever, or not."""

from __future__ import annotations

import duckdb

from flows.macros import macros
from transforms.fleet import Engine, Planning, Slo
from transforms.planner.replay.replay_options import ReplayOptions
from transforms.planner.whatif.settings import Refusals, known_settings

MEASURED = {"activation_bytes", "non_torch_bytes", "weights_bytes", "cuda_graph_bytes", "drafter_layers"}
"""What the engine's memory was measured to be, or of which kind a drafter is: nobody turns these."""
NEEDS_A_GUESS = {"speculative_tokens"}
"""Nobody knows beforehand how many drafted tokens are accepted."""
REPLAYED = {"router", "affinity_slack_requests", "prefix_caching_by", "reserve_full_prompt", "lone_request_exempt",
            "watermark_ratio", "tool_wait_policy"}  # fmt: skip
"""How requests are routed and scheduled, of the replay's options; the others are limits, traffic and assumptions."""


def test_a_lever_is_what_an_operator_turns_and_no_promise() -> None:
    connection = duckdb.connect()
    connection.execute(next(macro.sql for macro in macros() if macro.name == "is_lever"))
    known = known_settings()
    asked = "select key, is_lever(key || '=1'), is_lever('max_num_seqs=8, ' || key || '=x') from unnest(?) t(key)"
    answered = connection.execute(asked, [list(known)]).fetchall()
    assert all(alone == beside for _key, alone, beside in answered)
    levers = {key for key, alone, _beside in answered if alone}
    of = {kind: {key for key, its in known.items() if its is kind} for kind in set(known.values())}
    assert of[Engine] - levers == MEASURED | NEEDS_A_GUESS
    assert of[ReplayOptions] & levers == REPLAYED
    assert not levers & (of[Planning] | of[Slo] | of[Refusals])
    assert levers - of[Engine] - of[ReplayOptions] == {"gpu"}
