"""The answer to a query as text: a table, or where a terminal is too narrow for it a line for each value."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

from flows.query import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDE = ("W", "F")
"""East Asian widths of characters that take two columns of a terminal (Unicode, annex 11)."""


def text_lines(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], columns_wide: int | None = None) -> list[str]:
    """Lines of a table; where it is wider than `columns_wide`, each row as lines of a name and its value."""
    lines = table_lines(columns, rows)
    is_narrow = columns_wide is not None and max(map(_width, lines)) > columns_wide
    return block_lines(columns, rows) if is_narrow and rows else lines


def table_lines(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Lines of a plain table: names, a rule, then rows; numbers to the right, NULL spelled out."""
    cells = [[printable(cell(value, "NULL")) for value in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(columns, *cells, strict=True)]
    right = [
        all(value is None or isinstance(value, int | float) for value in column) for column in zip(*rows, strict=True)
    ]
    right = right or [False] * len(columns)

    def line(values: Sequence[str]) -> str:
        placed = (_placed(v, w, is_right=r) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(placed).rstrip()

    return [line(columns), line(["-" * width for width in widths]), *map(line, cells)]


def block_lines(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Lines of a block for each row: its number, then a line for each column."""
    width = max(map(_width, columns))
    lines = []
    for number, row in enumerate(rows, start=1):
        lines.append(f"--- row {number:,}")
        named = zip(columns, row, strict=True)
        lines += [f"{_placed(name, width)}  {printable(cell(value, 'NULL'))}" for name, value in named]
    return lines


def cell(value: Any, null: str) -> str:
    """One value as text: `null` for NULL, lists and structs as JSON, all others as JSON would write them unquoted."""
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list | tuple):
        return json.dumps(plain(value), ensure_ascii=False, default=str)
    return str(plain(value))


def printable(text: str) -> str:
    """`text` on one line, without what would steer a terminal: control characters are escaped as Python does."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _placed(text: str, width: int, *, is_right: bool = False) -> str:
    """`text` with blanks up to `width` columns of a terminal."""
    blanks = " " * (width - _width(text))
    return blanks + text if is_right else text + blanks


def _width(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in WIDE else 1 for c in text)
