"""One week's marts as a page: the decision first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import text
from reports.chapters import deployment_chapter, fleet_chapter, sources_chapter
from reports.marts import ALL, Marts, only, rows
from reports.page import Page
from reports.printed import compact, gpus, percent, sentence, shortened, usd_per_hour, week_days, whole
from reports.tables import brief_decisions, decisions
from reports.verdicts import headline, verdicts
from reports.words import LABELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


UNSERVED = "unserved_models"
SAID = ("slo_unreachable", "no_traffic", "no_interval")
"""Warnings that the decision itself says (action, objective, how sure); the table and the JSON have them too."""


def review_page(
    marts: Marts,
    week: str,
    versions: Mapping[str, str],
    commands: Sequence[str],
    accuracy: Sequence[Mapping[str, Any]] = (),
) -> Page:
    """The page of `week`; `versions` (package -> version) and `commands` end up under "how to reproduce".

    `accuracy` has the errors of predicted step times, one row for each engine, GPU, model and weight dtype.
    """
    found = verdicts(marts)
    return Page(
        week=week,
        days=week_days(week),
        run_id=text(only(marts, "mart_decision")["run_id"]),
        version=versions.get("kvledger", ""),
        coverage=coverage(marts),
        headline=headline(marts, found),
        verdicts=found,
        decisions=decisions(marts),
        brief=brief_decisions(marts),
        fleet=fleet_line(marts),
        warnings=warning_lines(marts),
        legend=LABELS,
        chapters=(
            *(deployment_chapter(marts, verdict.name, number) for number, verdict in enumerate(found)),
            fleet_chapter(marts),
            sources_chapter(marts, versions, commands, accuracy),
        ),
    )


def coverage(marts: Marts) -> str:
    """How many requests the week has, how much of it is covered, whose step times nobody measured: one phrase."""
    row = only(marts, "mart_coverage")
    words = row["coverage_text"] or f"{percent(row['covered_ratio'])} of the week covered"
    noun = "request" if row["requests"] == 1 else "requests"
    return f"{compact(row['requests'])} {noun} · {words}{_assumed_steps(marts)}"


def _assumed_steps(marts: Marts) -> str:
    """Words on plans whose step times are assumed; empty where all rest on measured runs."""
    steps = rows(marts, "mart_assumptions").filter(pl.col("name") == "step_overhead_s")
    assumed = steps.filter(pl.col("provenance") == "assumed")["deployment_id"].sort().to_list()
    if not assumed:
        return ""
    whose = "" if len(assumed) == steps.height else f" for {', '.join(map(shortened, assumed))}"
    return f" · step times assumed{whose}: calibrate before you order"


def fleet_line(marts: Marts) -> str:
    """GPUs and cost of all deployments together; empty where there is only one."""
    total = only(marts, "mart_fleet", gpu_id=ALL)
    if (total["deployments"] or 0) <= 1:
        return ""
    before = "" if total["previous_needed_gpus"] is None else f" ({whole(total['previous_needed_gpus'])} last week)"
    counts = f"{gpus(total['now_gpus'])} now, {whole(total['needed_gpus'])} needed{before}"
    cost = ""
    if total["cost_usd_per_hour"] is not None:
        now, needed = usd_per_hour(total["now_cost_usd_per_hour"]), usd_per_hour(total["cost_usd_per_hour"])
        cost = f"; {now} now, {needed} needed"
    whose = {2: "Both"}.get(total["deployments"], f"All {total['deployments']}")
    return f"{whose} deployments: {counts}{cost}"


def warning_lines(marts: Marts) -> tuple[str, ...]:
    """The week's warnings that the decision does not say itself, each once with the deployments it is about.

    Those about the whole fleet stand first, that nobody serves some requests before all.
    """
    frame = rows(marts, "mart_warnings", severity="warning").filter(~pl.col("code").is_in(SAID))
    order = (pl.col("code") != UNSERVED, pl.col("deployment_id") != ALL, "deployment_id", "code")
    about: dict[str, list[str]] = {}
    for row in frame.sort(*order).iter_rows(named=True):
        about.setdefault(str(row["text"]), []).append(str(row["deployment_id"]))
    return tuple(f"{_names(names)}: {words}" if ALL not in names else sentence(words) for words, names in about.items())


def _names(deployments: Sequence[str]) -> str:
    return ", ".join(shortened(name) for name in deployments)
