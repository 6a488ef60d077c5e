"""A page as Markdown: the decision on one screen for chat and pull requests, and every table in a file of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.blocks import Table
    from reports.page import Page, Verdict

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")
MOST_VERDICTS = 4
"""Most deployments whose reasons are told, the most urgent first; the table has all."""
_BLANKS = re.compile(r"\s+")


def markdown(page: Page, tables: str) -> str:
    """What a chat or a pull request shows: headline, decisions, reasons, actions, warnings; about forty lines.

    `tables` names the file that has the rest, `tables_markdown`.
    """
    lines = [f"# {page.title} {page.week}: {_headline(page)}", ""]
    lines += [f"{escaped(page.days)} · {escaped(page.coverage)} · run {page.run_id}", ""]
    first = page.brief or page.decisions
    lines += [*_table(first), "", *([escaped(first.note), ""] if first.note else [])]
    lines += [f"{escaped(page.fleet)}.", ""] if page.fleet else []
    for verdict in page.verdicts[:MOST_VERDICTS]:
        lines += [*_verdict(verdict), ""]
    if page.warnings:
        lines += ["**Warnings**", "", *(f"- {escaped(line)}" for line in page.warnings[: page.first_warnings]), ""]
    lines += [f"*{escaped(page.legend)}*", "", f"Every table, warning and assumption: {tables}"]
    return "\n".join(lines).rstrip() + "\n"


def tables_markdown(page: Page) -> str:
    """Every printed table of `page`, chapter by chapter, and the commands that make it again."""
    lines = [f"# {page.title} {page.week}: every table", "", f"run {page.run_id}", ""]
    lines += [f"### {escaped(page.decisions.title)}", "", *_table(page.decisions), ""]
    lines += [escaped(page.decisions.note), ""] if page.decisions.note else []
    for chapter in page.chapters:
        lines += [f"## {escaped(chapter.name)}", ""]
        for section in chapter.sections:
            lines += [escaped(section.note), ""] if section.note else []
            for table in section.tables:
                lines += [f"### {escaped(table.title)}", "", *_table(table), ""]
                lines += [escaped(table.note), ""] if table.note else []
            lines += [part for command in section.commands for part in ("```console", command, "```", "")]
    return "\n".join(lines).rstrip() + "\n"


def escaped(words: str) -> str:
    """`words` on one line with everything Markdown or HTML would act on escaped."""
    return _SPECIAL.sub(r"\\\1", _BLANKS.sub(" ", words)).strip().replace("&", "&amp;")


def _headline(page: Page) -> str:
    return " ".join(escaped(f"{part.name}: {part.text}" if part.name else part.text) for part in page.headline)


def _verdict(verdict: Verdict) -> Iterator[str]:
    facts = "; ".join(f"{label} {words}" for label, words in verdict.facts)
    what = ", ".join(verdict.what)
    yield f"**{escaped(verdict.short_name)}** ({escaped(what)}): {escaped(facts)}."
    yield from (f"- {escaped(label)}: {escaped(words)}" for label, words in verdict.reasons)
    yield from (f"- Worth doing: {escaped(words)}" for words in verdict.actions)


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        yield f"*{escaped(table.empty)}*"
        return
    yield "| " + " | ".join(escaped(label) for label in table.labels) + " |"
    yield "|" + "|".join(" :-- " if is_text else " --: " for is_text in table.is_text) + "|"
    for row in table.rows:
        yield "| " + " | ".join(escaped(cell) for cell in row) + " |"
