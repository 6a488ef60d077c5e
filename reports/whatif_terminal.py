"""What-ifs in a short plain table: today beside each scenario, differences first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.terminal import plain_line
from reports.whatif import ASSUMED_FIRST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.blocks import Table
    from reports.page import Page

MOST_LINES = 3


def whatif_lines(page: Page) -> tuple[str, ...]:
    """Lines: what is assumed, the week, the table of the first screen, what else must be known."""
    assumed = [line for line in page.warnings if line.startswith(ASSUMED_FIRST)]
    others = [line for line in page.warnings if line not in assumed]
    lines = [*assumed, f"{page.week} ({page.days}), {page.coverage}", ""]
    first = page.brief or page.decisions
    lines += [*_table(first), *([first.note] if first.note else []), ""]
    lines += [f"{part.name}: {part.text}" if part.name else part.text for part in page.headline]
    lines += [f"warning: {line}" for line in others[:MOST_LINES]]
    if (more := len(others) - MOST_LINES) > 0:
        lines.append(f"{more} more warning{'s' if more > 1 else ''} in the report")
    return tuple(plain_line(line) for line in lines)


def _table(table: Table) -> list[str]:
    """`table` in columns, a block for each deployment."""
    lines: list[str] = []
    body = [row[1:] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.labels[1:], *body, strict=True)]
    for number, row in enumerate(table.rows):
        if number == 0 or row[0] != table.rows[number - 1][0]:
            lines += [*([""] if lines else []), _line((row[0], *table.labels[2:]), widths, table.is_text[1:])]
        lines.append(_line((f"  {row[1]}", *row[2:]), widths, table.is_text[1:]))
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    width = max(widths[0] + 2, 12)
    texts = [f"{cells[0]:<{width}}"]
    for cell, size, left in zip(cells[1:], widths[1:], is_text[1:], strict=True):
        texts.append(f"{cell:<{size}}" if left else f"{cell:>{size}}")
    return "  ".join(texts).rstrip()
