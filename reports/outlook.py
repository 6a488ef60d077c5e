"""Printed tables of weeks beside each other: what moved, when GPUs run out, forecast against fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import Column, Table, present, table, text
from reports.charts.outlook import forecast_chart, mover_charts
from reports.marts import some
from reports.page import Section
from reports.printed import change, day, figure, gib_s, whole, yes_no
from reports.scenario_actions import scenario_actions
from reports.whatif_tables import TODAY, first_table
from reports.words import mover_word

if TYPE_CHECKING:
    from reports.marts import Marts


def outlook_sections(marts: Marts, deployment_id: str, chart_id: str) -> tuple[Section, ...]:
    """Sections on what changed and what is to come; each only where its tables have rows."""
    moved, asked = movers(marts, deployment_id), scenarios(marts, deployment_id)
    ahead = present(growth(marts, deployment_id), forecasts(marts, deployment_id))
    sections = []
    if moved is not None:
        charts = mover_charts(marts, deployment_id, f"{chart_id}-movers")
        sections.append(Section("What changed since last week", charts, (moved,), is_wide=True))
    if ahead:
        charts = present(forecast_chart(marts, deployment_id, f"{chart_id}-forecast"))
        sections.append(Section("Growth, and when today's GPUs run out", charts, ahead, is_wide=True))
    if asked:
        sections.append(Section("What if: settings that were asked about", tables=asked, is_wide=True))
    return tuple(sections)


def scenarios(marts: Marts, deployment_id: str) -> tuple[Table, ...]:
    """Today beside the scenarios that kvledger whatif was asked for this week, and which are worth doing; or none."""
    frame = some(marts, "mart_scenarios", deployment_id=deployment_id)
    if frame is None or frame.filter(pl.col("scenario_id") != TODAY).is_empty():
        return ()
    is_told = pl.col("swept_setting").is_null() | pl.col("is_knee") | pl.col("is_first_cut")
    told = frame.filter(is_told).sort("position")
    judged = scenario_actions(marts, deployment_id, frame["scenario_id"].to_list())
    return present(first_table(told, has_deployment=False), judged)


def movers(marts: Marts, deployment_id: str) -> Table | None:
    """The parts of the change since last week; None without an earlier week."""
    frame = some(marts, "mart_week_changes", deployment_id=deployment_id)
    if frame is None:
        return None
    return table("Parts of the change", frame, [
        Column("mover", "Mover", mover_word, is_text=True),
        Column("previous_week", "Since", text, is_text=True),
        Column("demand_part_gpus", "Part (GPUs)", figure),
        Column("demand_part_factor", "of last week's", change),
        Column("kv_time_part_byte_s", "Part (KV·time)", gib_s),
        Column("kv_time_part_factor", "of last week's", change),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_week_changes",
        note="Each mover's part is its mean effect over the orders in which the movers can be changed (Shapley); parts "
        "add up to the whole change. GPUs are those of the larger of the KV and compute demands, before rounding up to "
        "whole replicas; KV·time is at the pace the objective asks for, with contexts kept through tool waits.",
    )  # fmt: skip


def growth(marts: Marts, deployment_id: str) -> Table | None:
    """When today's GPUs run out, by when to order, and how earlier forecasts fared; None without a plan."""
    frame = some(marts, "mart_growth", deployment_id=deployment_id)
    if frame is None:
        return None
    return table("Run-out", frame, [
        Column("run_out_date", "Today's GPUs run out", day, is_optional=True),
        Column("order_by_date", "Order by", day, is_optional=True),
        Column("horizon_week", "Forecast to", text, is_text=True, is_optional=True),
        Column("value_gpus", "GPUs then", figure, is_optional=True),
        Column("low_gpus", "from", figure, is_optional=True),
        Column("high_gpus", "to", figure, is_optional=True),
        Column("judged_forecasts", "Forecasts judged", whole),
        Column("held_forecasts", "that held", whole),
        Column("growth_text", "In words", text, is_text=True),
    ], "mart_growth")  # fmt: skip


def forecasts(marts: Marts, deployment_id: str) -> Table | None:
    """The forecast of every week ahead, and the fact where it is known; None without a forecast."""
    frame = some(marts, "mart_forecasts", deployment_id=deployment_id)
    if frame is None:
        return None
    return table("Forecast against fact", frame.sort("horizon_week"), [
        Column("horizon_week", "Week", text, is_text=True),
        Column("value_gpus", "GPUs forecast", figure),
        Column("low_gpus", "from", figure),
        Column("high_gpus", "to", figure),
        Column("fact_gpus", "GPUs asked for then", figure, is_optional=True),
        Column("is_held", "In the interval", yes_no, is_optional=True),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_forecasts")  # fmt: skip
