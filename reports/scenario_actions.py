"""Which what-ifs are worth doing, and why the others are not: the rows behind the actions of the first screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import Column, Table, table, text
from reports.marts import some
from reports.printed import percent, shortened, usd, whole, yes_no

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reports.marts import Marts

SCENARIO_LENGTH = 60


def scenario_actions(marts: Marts, deployment_id: str, scenarios: Sequence[str]) -> Table | None:
    """What each of `scenarios` would save and cost the users, and whether it is worth doing; None without rows."""
    found = some(marts, "mart_scenario_actions", deployment_id=deployment_id)
    frame = None if found is None else found.filter(pl.col("scenario_id").is_in(list(scenarios))).sort("position")
    if frame is None or frame.is_empty():
        return None
    bound = percent(frame["loss_bound_ratio"][0])
    return table("Which of them is worth doing", frame, [
        Column("scenario_id", "Scenario", _scenario, is_text=True),
        Column("is_worth_doing", "Worth doing", yes_no, is_text=True),
        Column("against_text", "Why not", text, is_text=True, is_optional=True),
        Column("saving_gpus", "GPUs freed", whole),
        Column("saving_usd_per_hour", "Saved an hour", usd, is_optional=True),
        Column("loss_ratio", "Refused or cut", percent),
        Column("missed_ratio", "More miss the objectives", percent),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_scenario_actions",
        note=f"Worth doing: refuses or cuts at most {bound} of the requests and brings at most {bound} out of the "
        "objectives, both beyond today; keeps headroom, spare and objectives as promised; saves most. The first screen "
        "names that one alone.",
    )  # fmt: skip


def worth_doing(marts: Marts, deployment_id: str, scenarios: Sequence[str]) -> str:
    """The one of `scenarios` that is worth doing, what it frees and what it risks; empty where none is."""
    found = some(marts, "mart_scenario_actions", deployment_id=deployment_id)
    frame = None if found is None else found.filter("is_worth_doing", pl.col("scenario_id").is_in(list(scenarios)))
    if frame is None or frame.is_empty():
        return ""
    row = frame.row(0, named=True)
    return f"{_scenario(row['scenario_id'])} is worth doing: {row['freed_text']}; risk: {row['risk_text']}"


def _scenario(name: str | None) -> str:
    return shortened(text(name), SCENARIO_LENGTH)
