"""The decision in a few lines of plain text, for the end of `kvledger review`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.printed import UNKNOWN

if TYPE_CHECKING:
    from reports.page import Page, Verdict

ASSUMED = "Assumed"
"""The reason that is not a sentence of its own."""
_CONTROL = dict.fromkeys((*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)))
"""Characters that could move the cursor or turn text round: names come from logs."""


def decision_lines(page: Page) -> tuple[str, ...]:
    """Lines: the week, then for each deployment what to do, counts, what binds, and what changed."""
    lines = [f"{page.week} ({page.days}), {page.coverage}"]
    lines += [part.text for part in page.headline if not part.name]
    width = max((len(verdict.short_name) for verdict in page.verdicts), default=0)
    for verdict in page.verdicts:
        lines += _lines(verdict, width)
    lines += [page.fleet] if page.fleet else []
    lines += [f"warning: {line}" for line in page.warnings]
    return tuple(plain_line(line) for line in lines)


def plain_line(line: str) -> str:
    """`line` without characters that a terminal would obey."""
    return line.translate(_CONTROL)


def _lines(verdict: Verdict, width: int) -> list[str]:
    interval = f" ({verdict.interval})" if verdict.needed != UNKNOWN else ""
    noun = "GPU" if verdict.needed == "1" else "GPUs"
    count = f"{verdict.needed} {noun} needed{interval}, {verdict.now} now: {verdict.action}"
    return [
        f"{verdict.short_name:<{width}}  {count}",
        *(f"{'':<{width}}  {'assumed: ' if label == ASSUMED else ''}{words}" for label, words in verdict.reasons),
        *(f"{'':<{width}}  worth doing: {words}" for words in verdict.actions),
    ]
