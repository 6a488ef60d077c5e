"""Tool-wait policies by name, and which gaps of a trace they apply to."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from transforms.errors import ConfigError
from transforms.fleet import Engine
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_options import ReplayOptions, with_settings
from transforms.planner.replay.replay_types import Caching, Pool, Settings, TraceColumns
from transforms.planner.replay.step_costs import StepCosts
from transforms.planner.tool_waits.policy import Policy, parsed, policy_of
from transforms.planner.tool_waits.tool_gaps import after_tools

COSTS = StepCosts(1e-4, 0.0, 0.0, 0.01, 0.0)


@pytest.mark.parametrize(
    ("text", "ttl_s"), [("lru", 0.0), ("drop", 0.0), ("keep", math.inf), ("offload", 0.0), ("ttl:12.5", 12.5)]
)
def test_policies_by_name(text: str, ttl_s: float):
    policy = policy_of(text, Engine())
    assert policy.text == text
    assert policy.ttl_s == ttl_s


def test_an_engine_without_a_policy_does_what_its_prefix_cache_does():
    assert policy_of("auto", Engine(enable_prefix_caching=True)) == Policy("lru")
    assert policy_of("auto", Engine(enable_prefix_caching=False)) == Policy("drop")
    assert parsed("auto") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("kep", "did you mean 'keep'"), ("ttl", "as in ttl:30"), ("ttl:-1", "0 or more"), ("ttl:inf", "0 or more"),
     ("keep:3", "must be one of")],
)  # fmt: skip
def test_what_is_no_policy_is_told_the_known_ones(text: str, said: str):
    with pytest.raises(ConfigError, match=said):
        with_settings(Engine(), ReplayOptions(), [f"tool_wait_policy={text}"])


def test_tool_waits_of_a_trace_are_those_of_the_warehouse():
    rows = pl.DataFrame(
        [
            # status, finish_reason, tool_calls, tool_results, logged wait; whether the gap before it is a tool wait
            ("ok", "tool_calls", 2, None, None, False),
            ("ok", "stop", None, None, None, True),  # the calls alone decide
            ("ok", None, None, 1, None, False),  # the answer before asked for nothing
            ("ok", "stop", 0, 3, None, True),  # nobody knows what that one asked, but here are results
            ("ok", "stop", 0, None, 4.0, True),  # the source says so
            ("error", "tool_calls", 1, None, None, False),
            ("ok", "tool_use", None, 1, None, False),  # a failed answer delivered no calls
            ("ok", "stop", 0, 0, None, False),  # calls, but no results came
        ],
        schema={"status": pl.String, "finish_reason": pl.String, "tool_calls": pl.Int32, "tool_results": pl.Int32,
                "logged_tool_wait_s": pl.Float64, "is_tool": pl.Boolean},
        orient="row",
    )  # fmt: skip
    before = np.arange(-1, rows.height - 1)
    assert after_tools(rows, before).tolist() == rows["is_tool"].to_list()


def agent(gap_s: float) -> TraceColumns:
    """A turn of 800 tokens, another after `gap_s` of tools, and one request of another session in between."""
    return TraceColumns(
        arrived_s=np.array([0.0, 1.0, 0.0]),
        prompt_tokens=np.array([800, 900, 910], dtype=np.int32),
        output_tokens=np.array([2, 2, 2], dtype=np.int32),
        session=np.array([0, 1, 0], dtype=np.int32),
        parent=np.array([-1, -1, 0], dtype=np.int32),
        delay_s=np.array([0.0, 0.0, gap_s]),
        from_start=np.zeros(3, dtype=np.bool_),
        is_tool_wait=np.array([False, False, True]),
    )


ENGINE = Settings(Pool(65), max_num_seqs=4, max_num_batched_tokens=2048, caching=Caching.SESSION)


def test_a_pin_keeps_what_lru_would_lose_and_what_waits_meanwhile_waits():
    lru = replay(agent(5.0), ENGINE, COSTS)
    assert lru.cached_tokens.tolist() == [0, 0, 128], "of 50 blocks, the 8 that 57 others leave of 65"
    assert lru.queue_s[1] == 0
    for engine in (replace(ENGINE, pin_s=math.inf), replace(ENGINE, pin_s=6.0)):
        kept = replay(agent(5.0), engine, COSTS)
        held_s = 1.0 - lru.e2e_s[0]
        assert kept.pinned_unit_s[0] == pytest.approx(50 * held_s), "nothing else runs: the oldest pin makes room"
    busy = replace(agent(5.0), arrived_s=np.array([0.0, 0.0, 0.0]), output_tokens=np.array([2, 400, 2], dtype=np.int32))
    wide = replace(ENGINE, pool=Pool(140), pin_s=math.inf)
    kept = replay(busy, wide, COSTS)
    assert kept.cached_tokens.tolist() == [0, 0, 800]
    assert kept.pinned_unit_s[0] == pytest.approx(50 * 5.0, rel=0.01)


def test_a_pin_of_four_seconds_is_over_when_the_turn_comes_after_five():
    wide = replace(ENGINE, pool=Pool(140))
    held = replay(agent(5.0), replace(wide, pin_s=4.0), COSTS)
    assert held.pinned_unit_s[0] == pytest.approx(50 * 4.0, rel=1e-3)
    assert held.cached_tokens[2] == 800, "what is no longer pinned is still cached"


def test_a_copy_comes_back_over_the_link():
    # the other session needs 57 blocks while 50 are out: in a pool of 65 nothing of them is left on the GPU
    moved = replay(agent(5.0), replace(ENGINE, offload_s_per_unit=0.01), COSTS)
    assert moved.pinned_unit_s[0] == pytest.approx(50 * 0.5, rel=1e-6), "50 blocks take half a second to go out"
    assert moved.cached_tokens[2] == 800
    stayed = replay(agent(5.0), replace(ENGINE, pool=Pool(140), pin_s=math.inf), COSTS)
    # 42 blocks are no longer there and take 0.42 s; the eight that survived need no transfer
    assert moved.ttft_s[2] - stayed.ttft_s[2] == pytest.approx(0.42, abs=0.01)
