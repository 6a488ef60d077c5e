"""The page as data: everything a reader sees, before it becomes HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reports.blocks import Chart, Table


@dataclass(frozen=True)
class Headline:
    """One sentence of the headline: a deployment's name, if it speaks of one, and the rest."""

    text: str
    name: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Verdict:
    """The decision for one deployment, printed: the first screen and the top of the Markdown."""

    name: str
    short_name: str
    what: tuple[str, ...]
    kind: str
    action: str
    needed: str
    interval: str
    before: str
    now: str
    facts: tuple[tuple[str, str], ...]
    reasons: tuple[tuple[str, str], ...]
    chart: Chart | None = None
    actions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One heading of a chapter with its charts and printed tables."""

    title: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    note: str = ""
    anchor: str = ""
    commands: tuple[str, ...] = ()
    is_wide: bool = False


@dataclass(frozen=True)
class Chapter:
    """A deployment, or what concerns the whole fleet."""

    anchor: str
    name: str
    short_name: str
    lead: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Page:
    """One week's review, or what-ifs on it."""

    week: str
    days: str
    run_id: str
    version: str
    coverage: str
    headline: tuple[Headline, ...]
    verdicts: tuple[Verdict, ...]
    decisions: Table
    fleet: str
    warnings: tuple[str, ...]
    legend: str
    chapters: tuple[Chapter, ...]
    first_warnings: int = 3
    brief: Table | None = None
    """The decisions in few columns, where `decisions` has many."""
    title: str = "Capacity review"
