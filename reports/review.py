"""One week's marts as a page: the decision first, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.blocks import text
from reports.chapters import deployment_chapter, fleet_chapter, sources_chapter
from reports.marts import Marts, only, rows
from reports.page import Page
from reports.printed import compact, percent, week_days
from reports.tables import decisions
from reports.verdicts import headline, verdicts
from reports.words import about_word


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
    """The week's warnings, each with the deployment it is about; those about the whole fleet first."""
    frame = rows(marts, "mart_warnings").sort("deployment_id", "code")
    return tuple(
        f"{about_word(row['deployment_id'])}: {row['text']}" if about_word(row["deployment_id"]) != "whole fleet"
        else str(row["text"])
        for row in frame.iter_rows(named=True)
    )  # fmt: skip
