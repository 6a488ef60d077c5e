"""An answer as text: what a terminal shows of lists, wide characters, line ends and rows that are wider than it."""

from __future__ import annotations

import datetime as dt

from flows.answer_text import block_lines, cell, table_lines, text_lines

ROWS = [("日本", 1.5, ["a", "ü"]), ("x\ny\x1b[2J", None, None)]
NAMES = ("name", "share_ratio", "flags")


def test_columns_stand_below_each_other_whatever_the_text() -> None:
    assert table_lines(NAMES, ROWS) == [
        "name         share_ratio  flags",
        "-----------  -----------  ----------",
        '日本                 1.5  ["a", "ü"]',
        "x\\ny\\x1b[2J         NULL  NULL",
    ]


def test_a_row_wider_than_the_terminal_is_a_block() -> None:
    assert text_lines(NAMES, ROWS, columns_wide=None) == table_lines(NAMES, ROWS)
    assert text_lines(NAMES, ROWS, columns_wide=36) == table_lines(NAMES, ROWS)
    assert text_lines(NAMES, ROWS, columns_wide=35) == block_lines(NAMES, ROWS)
    assert text_lines(NAMES, [], columns_wide=10) == table_lines(NAMES, [])
    assert block_lines(NAMES, ROWS)[:4] == [
        "--- row 1", "name         日本", "share_ratio  1.5", 'flags        ["a", "ü"]'
    ]  # fmt: skip


def test_lists_and_structs_are_json() -> None:
    assert cell([1, None], "") == "[1, null]"
    assert cell({"at": dt.datetime(2026, 11, 16)}, "") == '{"at": "2026-11-16T00:00:00"}'  # noqa: DTZ001
    assert (cell(None, ""), cell(True, ""), cell(2, "")) == ("", "true", "2")
