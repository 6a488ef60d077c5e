from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from transforms.canonical import SCHEMA
from transforms.errors import InputError
from transforms.planner.replay.rate_scaling import rotated, scaled
from transforms.planner.replay.replay_trace import replay_trace

START = datetime(2026, 11, 16, tzinfo=UTC)


def rows(*records: dict[str, Any]) -> pl.DataFrame:
    """Canonical rows; `at` is the arrival in seconds."""
    given = [
        {
            "request_id": f"r{n}",
            "attempt": 1,
            "operation": "chat",
            "served_by": "backend",
            "status": "ok",
            "prompt_tokens": 100,
            "output_tokens": 10,
            "flags": [],
            **record,
            "arrived_at": START + timedelta(seconds=record["at"]),
        }
        for n, record in enumerate(records)
    ]
    return pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in given], schema=SCHEMA)


def test_a_turn_follows_the_end_of_the_one_before_by_the_gap_in_the_log():
    trace = replay_trace(
        rows({"at": 0, "session_id": "s", "e2e_s": 4.0}, {"at": 1}, {"at": 7, "session_id": "s", "e2e_s": 1.0}), "t"
    )
    assert trace.columns.parent.tolist() == [-1, -1, 0]
    assert trace.columns.delay_s[2] == pytest.approx(3.0)
    assert not trace.columns.from_start[2]
    assert trace.has_sessions


def test_a_logged_tool_wait_wins_over_the_gap():
    first = {"at": 0, "session_id": "s", "e2e_s": 4.0}
    trace = replay_trace(rows(first, {"at": 7, "session_id": "s", "logged_tool_wait_s": 2.5}), "t")
    assert trace.columns.delay_s[1] == 2.5


def test_an_overlapping_call_keeps_its_offset_from_the_start_of_the_one_that_ran():
    trace = replay_trace(
        rows({"at": 0, "session_id": "s", "e2e_s": 4.0}, {"at": 1.5, "session_id": "s", "agent_id": "sub"}), "t"
    )
    assert trace.columns.parent.tolist() == [-1, 0]
    assert trace.columns.from_start[1]
    assert trace.columns.delay_s[1] == pytest.approx(1.5)


def test_a_turn_after_an_answer_of_unknown_end_arrives_at_its_logged_time_and_is_counted():
    trace = replay_trace(rows({"at": 0, "session_id": "s"}, {"at": 7, "session_id": "s"}), "t")
    assert len(trace.columns.parent) == 0
    assert trace.unknown_gaps == 1
    assert trace.columns.arrived_s.tolist() == [0.0, 7.0]


def test_rows_that_are_no_request_of_the_engine_are_left_out_and_counted():
    trace = replay_trace(
        rows(
            {"at": 0},
            {"at": 1, "prompt_tokens": 0},
            {"at": 2, "prompt_tokens": None},
            {"at": 3, "operation": "embedding"},
            {"at": 4, "served_by": "gateway_cache"},
        ),
        "t",
    )
    assert trace.columns.rows == 1
    assert trace.left_out == {"answered by a cache of the gateway": 1, "no generation": 1, "without prompt tokens": 2}


def test_a_trace_without_requests_is_refused_with_what_it_has():
    with pytest.raises(InputError, match=r"trace.csv: nothing to replay .1 without prompt tokens"):
        replay_trace(rows({"at": 0, "prompt_tokens": 0}), "trace.csv")
    with pytest.raises(InputError, match="it has no rows"):
        replay_trace(rows(), "trace.csv")


def test_unknown_outputs_are_drawn_from_known_ones_of_like_prompts_the_same_with_the_same_seed():
    known = [{"at": n, "prompt_tokens": 10, "output_tokens": 5} for n in range(300)]
    known += [{"at": 300 + n, "prompt_tokens": 5000, "output_tokens": 700 + n} for n in range(300)]
    unknown = [{"at": 700 + n, "prompt_tokens": 10 + 4990 * (n % 2), "output_tokens": None} for n in range(50)]
    log = rows(*known, *unknown)
    trace, again, other = replay_trace(log, "t", 1), replay_trace(log, "t", 1), replay_trace(log, "t", 2)
    drawn = trace.columns.output_tokens[-50:]
    assert trace.drawn_outputs == 50
    assert set(drawn[::2]) == {5}
    assert drawn[1::2].min() >= 700
    assert drawn.tolist() == again.columns.output_tokens[-50:].tolist()
    assert drawn.tolist() != other.columns.output_tokens[-50:].tolist()


def test_a_trace_of_which_no_output_is_known_is_refused():
    with pytest.raises(InputError, match="no row has the length of a finished output"):
        replay_trace(rows({"at": 0, "output_tokens": None}), "t")


def test_ids_lose_the_arrival_that_was_added_where_they_stay_unique():
    stamp = int(START.timestamp() * 1e6)
    one = rows({"at": 0, "request_id": f"bench-0@{stamp}"}, {"at": 1, "request_id": f"bench-1@{stamp + 1_000_000}"})
    assert replay_trace(one, "t").request_id.to_list() == ["bench-0", "bench-1"]
    two = rows({"at": 0, "request_id": f"bench-0@{stamp}"}, {"at": 1, "request_id": f"bench-0@{stamp + 1_000_000}"})
    assert replay_trace(two, "t").request_id.to_list() == [f"bench-0@{stamp}", f"bench-0@{stamp + 1_000_000}"]


def test_prefix_blocks_are_whole_blocks_numbered_from_zero():
    blocks = {"prefix_block_tokens": 64, "prompt_tokens": 150}
    trace = replay_trace(
        rows(
            {"at": 0, "prefix_block_ids": [2**60, 7, 9], **blocks},
            {"at": 1},
            {"at": 2, "prefix_block_ids": [2**60, 8, 9], **blocks},
        ),
        "t",
    )
    assert trace.prefix_block_tokens == 64
    assert trace.columns.block_offsets.tolist() == [0, 2, 2, 4]
    assert trace.columns.block_ids.tolist() == [2, 0, 2, 1]


def sessions(count: int) -> pl.DataFrame:
    """Sessions of two turns, 10 s apart, one each 20 s."""
    return rows(*({"at": 20 * (n // 2) + 10 * (n % 2), "session_id": f"s{n // 2}", "e2e_s": 4.0} for n in range(count)))


def test_more_traffic_is_whole_sessions_again_shifted_and_renamed():
    trace = replay_trace(sessions(400), "t")
    more = scaled(trace, 2.5, seed=3)
    assert more.columns.rows == pytest.approx(1000, rel=0.08)
    assert more.request_id.is_unique().all()
    roots = more.columns.parent < 0
    assert (np.diff(more.columns.arrived_s[roots]) >= 0).all()
    assert (more.columns.parent < np.arange(more.columns.rows)).all()
    caused = np.flatnonzero(~roots)
    assert (more.columns.session[caused] == more.columns.session[more.columns.parent[caused]]).all()
    assert set(more.columns.delay_s[caused].round(6)) == {6.0}
    assert more.columns.arrived_s.max() <= trace.span_s + 10
    again = scaled(trace, 2.5, seed=3)
    assert again.columns.arrived_s.tolist() == more.columns.arrived_s.tolist()


def test_less_traffic_leaves_out_whole_sessions_and_moves_none():
    trace = replay_trace(sessions(400), "t")
    less = scaled(trace, 0.25, seed=1)
    assert less.columns.rows == pytest.approx(100, rel=0.4)
    assert (less.columns.parent >= 0).sum() * 2 == less.columns.rows
    assert set(less.columns.arrived_s) <= set(trace.columns.arrived_s)


def test_a_trace_begun_elsewhere_is_the_same_sessions_in_another_order():
    trace = replay_trace(sessions(40), "t")
    other = rotated(trace, 105.0)  # the sixth session is running then, the seventh comes next
    assert other.request_id.to_list() == trace.request_id.to_list()[12:] + trace.request_id.to_list()[:12]
    starts = other.columns.arrived_s[other.columns.parent < 0]
    assert starts.tolist() == pytest.approx(np.arange(15.0, 400.0, 20.0).tolist())
    assert other.columns.parent[1::2].tolist() == list(range(0, 40, 2))


def test_compressing_brings_arrivals_together_and_leaves_waits():
    trace = replay_trace(sessions(40), "t")
    fast = scaled(trace, 4.0, "compress")
    assert fast.span_s == pytest.approx(trace.span_s / 4)
    assert fast.columns.delay_s.tolist() == trace.columns.delay_s.tolist()


def test_a_copy_of_a_session_has_its_own_prefix_blocks_but_shares_those_that_sessions_share():
    blocks = {"prefix_block_tokens": 64, "prompt_tokens": 128}
    log = rows(
        {"at": 0, "session_id": "a", "prefix_block_ids": [1, 2], **blocks},
        {"at": 1, "session_id": "b", "prefix_block_ids": [1, 3], **blocks},
    )
    twice = scaled(replay_trace(log, "t"), 2.0)
    assert sorted(np.bincount(twice.columns.block_ids).tolist()) == [1, 1, 1, 1, 4]
