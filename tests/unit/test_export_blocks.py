"""Block ids that are made of sessions, and ids in other sizes."""

from __future__ import annotations

import pytest

from transforms.exports.aiperf_trace import lines
from transforms.exports.blocks import resized, with_blocks
from transforms.exports.traffic import Request


def turn(session, prompt, output, *, cached=None, offset=0, end=None, last=False):
    return Request(offset, end, session, prompt, cached, output, None, None, last)


def test_a_longer_prompt_begins_with_the_context_before_it():
    turns = [turn("a", 100, 60), turn("b", 100, 10), turn("a", 200, 10, last=True), turn(None, 48, 1)]
    first, other, second, lone = [r.block_ids for r in with_blocks(turns, 16)]
    assert len(first) == 7
    assert len(second) == 13
    assert second[:7] == first
    assert len(set(first) | set(second)) == 13
    assert not set(other) & set(second)
    assert len(set(lone) - set(first) - set(second) - set(other)) == 3


def test_only_whole_blocks_are_shared():
    first, second = [r.block_ids for r in with_blocks([turn("a", 10, 15), turn("a", 40, 1)], 16)]
    assert first == second[:1]
    assert len(second) == 3


def test_a_shorter_prompt_shares_what_was_found_cached():
    for cached, shared in ((None, 0), (40, 2), (10_000, 3)):
        first, second = [r.block_ids for r in with_blocks([turn("a", 100, 0), turn("a", 48, 0, cached=cached)], 16)]
        assert second[:shared] == first[:shared]
        assert not set(second[shared:]) & set(first)


def test_the_end_of_a_session_is_its_end():
    first, again = [r.block_ids for r in with_blocks([turn("a", 32, 0, last=True), turn("a", 32, 0)], 16)]
    assert not set(first) & set(again)


@pytest.mark.parametrize(("ids", "sizes", "prompt", "expected"), [
    ([5, 6], (512, 512), 600, [5, 6]),
    ([5, 6], (32, 16), 40, [10, 11, 12]),
    ([5, 6, 7], (16, 32), 40, [6, 7]),
    ([5, 6, 7], (16, 24), 40, None),
    ([2**64 - 1], (32, 16), 20, [2**64 - 2, 2**64 - 1]),
])  # fmt: skip
def test_ids_in_other_sizes(ids, sizes, prompt, expected):
    assert resized(ids, *sizes, prompt) == expected


def test_aiperf_turns_count_what_is_new_and_begin_anew_when_compacted():
    turns = [
        turn("s", 100, 20, offset=0, end=5_000_000),
        turn("s", 150, 10, offset=7_500_000, end=9_000_000),
        turn("s", 90, 10, offset=20_000_000),
        turn("s", 200, 10, offset=30_000_000),
    ]
    first, second, third, fourth = lines(turns)
    assert (first["timestamp"], first["input_length"]) == (0.0, 100)
    assert (second["delay"], second["input_length"]) == (2500.0, 30)
    assert "timestamp" not in second
    assert (third["session_id"], third["timestamp"], third["input_length"]) == ("s#2", 20_000.0, 90)
    assert (fourth["session_id"], fourth["timestamp"], fourth["input_length"]) == ("s#2", 30_000.0, 100)
