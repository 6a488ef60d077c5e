"""Blocks of CSV as records and cells: as many of the one as of the other, whatever quotes stand where."""

from __future__ import annotations

import pytest

from flows.reading.csv_rows import check_columns_once, csv_rows
from transforms.errors import InputError


@pytest.mark.parametrize(
    ("block", "cells", "bad"),
    [
        (b'a,1\n"b\nc",2\n', [("a", "1"), ("b\nc", "2")], 0),
        (b'a,1\nx"y,2\n', [("a", "1")], 0),  # what is quoted does not end in this block: its reader never cuts there
        (b'a,1\n{"x\ny\n{",2\nb,3\n', [("a", "1"), ("b", "3")], 1),
        (b"a,1\n\nb\nc,3\n", [("a", "1"), ("c", "3")], 1),
    ],
)
def test_good_records_have_their_cells(block: bytes, cells: list[tuple[str, str]], bad: int) -> None:
    rows = csv_rows(block, ",", ("name", "number"))
    assert rows.cells.rows() == cells
    assert rows.spans.is_good.sum() == len(cells)
    assert (~rows.spans.is_good & ~rows.spans.is_blank).sum() == bad


@pytest.mark.parametrize("block", [b"1,2,3,4\n", b'1,2,"3",4\n', b'1,2,3,4\n5,6,x"y,8\n'])
def test_a_name_that_comes_again_is_that_of_no_column(block: bytes) -> None:
    rows = csv_rows(block, ",", ("a", "b", "b", ""), whole=("a", "b"))
    assert [str(rows.cells[name][0]) for name in ("a", "b")] == ["1", "2"]
    assert rows.cells.columns[:2] == ["a", "b"]


def test_two_columns_of_a_name_that_is_asked_for_are_refused() -> None:
    check_columns_once(["a", "b", "b", "", ""], ["a", ""])
    with pytest.raises(InputError, match="two columns 'b'"):
        check_columns_once(["a", "b", "b"], ["b"])
