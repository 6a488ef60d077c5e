"""Bailian traces: conversations by their first chat, seconds, blocks of 16 tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transforms.batches import Batch, Parsed
from transforms.fleet import Source
from transforms.sources import bailian

SOURCE = Source("bailian", "x", block_tokens=16, time_unit="s", origin="2026-03-01T00:00:00Z")


def chat(number: int, parent: int = -1, at: float = 0.0, tokens: int = 33, **more: Any) -> dict[str, Any]:
    ids = list(range(-(-tokens // 16)))
    return {"chat_id": number, "parent_chat_id": parent, "timestamp": at, "input_length": tokens, "output_length": 5,
            "type": "text", "turn": 1, "hash_ids": ids} | more  # fmt: skip


def parse(*records: dict[str, Any], carry: dict[str, Any] | None = None) -> Parsed:
    lines = [json.dumps(record).encode() for record in records]
    batch = Batch("t.jsonl", lines, list(range(len(lines))), {} if carry is None else carry)
    return bailian.canonicalise(batch, SOURCE)


def test_a_conversation_is_named_by_its_first_chat() -> None:
    rows = parse(chat(1), chat(2), chat(3, parent=1, turn=2), chat(9, parent=3, turn=3), chat(4, parent=2, turn=2)).rows
    assert rows["session_id"].to_list() == ["1", "2", "1", "1", "2"]
    assert rows["turn"].to_list() == [1, 1, 2, 3, 2]


def test_conversations_run_on_from_batch_to_batch() -> None:
    carry: dict[str, Any] = {}
    parse(chat(1), chat(2, parent=1), carry=carry)
    assert parse(chat(5, parent=2), carry=carry).rows["session_id"].to_list() == ["1"]


def test_a_chat_whose_parent_is_not_there_joins_it_by_name() -> None:
    assert parse(chat(5, parent=4), chat(6, parent=5)).rows["session_id"].to_list() == ["4", "4"]


def test_block_ids_are_the_files_own_whatever_the_batch() -> None:
    carry: dict[str, Any] = {}
    first = parse(chat(1), carry=carry).rows["prefix_block_ids"].to_list()[0]
    assert parse(chat(2), carry=carry).rows["prefix_block_ids"].to_list() == [first]
    assert len(set(first)) == 3
    elsewhere = parse(chat(7), chat(2)).rows["prefix_block_ids"].to_list()
    assert elsewhere[0] == elsewhere[1]
    assert not set(first) & set(elsewhere[0])


def test_stamps_are_seconds() -> None:
    first, second = parse(chat(1), chat(2, at=3.25)).rows["arrived_at"]
    assert second - first == 3_250_000


def test_chats_of_two_files_are_no_duplicates_for_their_number() -> None:
    assert "request_id" not in parse(chat(1)).rows.columns


def test_block_ids_that_do_not_fit_are_dropped() -> None:
    rows = parse(chat(1, hash_ids=[1, 2]), chat(2)).rows
    assert [ids is None for ids in rows["prefix_block_ids"]] == [True, False]
    assert rows["flags"].to_list() == [["hash_block_mismatch"], []]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"input_length": 1.5}, "not a whole number"),
        ({"timestamp": "soon"}, "not a time"),
        ({"turn": True}, "not a number"),
        ({"turn": 2**40}, "number too large"),
    ],
)
def test_bad_fields_are_rejected(bad: dict[str, Any], reason: str) -> None:
    parsed = parse(chat(1) | bad, chat(2))
    assert [reject.reason for reject in parsed.rejects] == [reason]
    assert len(parsed.rows) == 1
