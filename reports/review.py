"""One week's marts as a page: the decision first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.blocks import text
from reports.chapters import deployment_chapter, fleet_chapter, sources_chapter
from reports.marts import ALL, Marts, only, rows
from reports.page import Page
from reports.printed import compact, percent, sentence, shortened, week_days
from reports.tables import decisions
from reports.verdicts import headline, verdicts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def review_page(marts: Marts, week: str, versions: Mapping[str, str], commands: Sequence[str]) -> Page:
    """The page of `week`; `versions` (package -> version) and `commands` end up under "how to reproduce"."""
    found = verdicts(marts)
    return Page(
        week=week,
        days=week_days(week),
        run_id=text(only(marts, "mart_decision")["run_id"]),
        version=versions.get("kvledger", ""),
        coverage=coverage(marts),
        headline=headline(found),
        verdicts=found,
        decisions=decisions(marts),
        warnings=warning_lines(marts),
        chapters=(
            *(deployment_chapter(marts, verdict.name, number) for number, verdict in enumerate(found)),
            fleet_chapter(marts),
            sources_chapter(marts, versions, commands),
        ),
    )


def coverage(marts: Marts) -> str:
    """How many requests the week has and how much of it is covered, in one phrase."""
    row = only(marts, "mart_coverage")
    words = row["coverage_text"] or f"{percent(row['covered_ratio'])} of the week covered"
    return f"{compact(row['requests'])} requests · {words}"


def warning_lines(marts: Marts) -> tuple[str, ...]:
    """The week's warnings, each once with the deployments it is about; those about the whole fleet first."""
    about: dict[str, list[str]] = {}
    for row in rows(marts, "mart_warnings").sort("deployment_id", "code").iter_rows(named=True):
        about.setdefault(str(row["text"]), []).append(str(row["deployment_id"]))
    lines = [(_names(names), words) for words, names in about.items()]
    return tuple(f"{names}: {words}" if names else sentence(words) for names, words in sorted(lines, key=_fleet_first))


def _fleet_first(line: tuple[str, str]) -> bool:
    return line[0] != ""


def _names(deployments: Sequence[str]) -> str:
    return "" if ALL in deployments else ", ".join(shortened(name) for name in deployments)
