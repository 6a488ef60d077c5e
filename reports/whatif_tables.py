"""The printed tables of what-ifs: the difference from today before the figure itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from reports.blocks import Table
from reports.printed import (
    MINUS,
    UNKNOWN,
    compact,
    gib,
    gib_s,
    gpu_hours,
    percent,
    rounded,
    seconds,
    shortened,
    usd,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

TODAY = "today"
ANSWERED = "answered"
SOURCE = "mart_scenarios"
POINTS = "Points of the sweep"
"""Title of the table that has all points of one sweep."""
SCENARIO_LENGTH = 60
OUT_OF_REACH = "out of reach"
"""In place of the GPUs needed where no number of them keeps the objectives."""
NOT_ZERO = re.compile("[1-9]")
"""What a figure has that is not zero as printed."""

Cell = tuple[str, str, str | None, Callable[[Any], str]]
"""Heading, column, column of its difference from today (None: it has none) and how both are printed."""


def points(ratio: float) -> str:
    """A difference of two shares in percentage points."""
    return f"{rounded(ratio * 100, 1)} pt"


CHANGES: Mapping[Callable[[Any], str], Callable[[Any], str]] = {percent: points}
"""How differences are printed that are not printed like the figures themselves."""

RUN: Cell = ("GPUs run", "fleet_gpus", None, whole)
"""What is replayed: of today the GPUs that run now, of a scenario those it sets."""
FLEET: tuple[Cell, ...] = (
    ("GPUs needed", "needed_gpus", "needed_change_gpus", whole),
    ("Cost an hour", "cost_usd_per_hour", "cost_change_usd_per_hour", usd),
)
SERVICE: tuple[Cell, ...] = (
    ("In objective", "attainment_ratio", "attainment_change_ratio", percent),
    ("TTFT p95", "ttft_p95_s", "ttft_p95_change_s", seconds),
    ("TPOT p95", "tpot_p95_s", "tpot_p95_change_s", seconds),
)
AUTOSCALED: tuple[Cell, ...] = (
    ("GPU time paid", "paid_gpu_s", "autoscaled_change_gpu_s", gpu_hours),
    ("Objective missed", "missed_requests", "autoscaled_change_requests", whole),
)
"""Differences are from the fixed fleet under the scenario's other settings, not from today."""
FIXED: tuple[Cell, ...] = (
    ("Fixed fleet, replicas", "fixed_fleet_replicas", None, whole),
    ("its GPU time", "fixed_fleet_gpu_s", None, gpu_hours),
    ("its missed", "fixed_fleet_missed_requests", None, whole),
    ("Autoscaler pays more", "autoscaled_change_usd", None, usd),
)
LOSSES: tuple[Cell, ...] = (
    ("Refused", "rejected_requests", "rejected_change_requests", whole),
    ("Turns lost", "lost_requests", "lost_change_requests", compact),
    ("Tokens lost", "lost_output_tokens", "lost_change_tokens", compact),
)
HELD: tuple[Cell, ...] = (
    ("KV·time", "kv_time_byte_s", "kv_time_change_byte_s", gib_s),
    ("Peak residency", "residency_peak_bytes", "residency_change_bytes", gib),
    ("KV pool at most", "kv_peak_ratio", None, percent),
)
LENGTHS: tuple[Cell, ...] = (
    ("Refused: prompt", "prompt_too_long_requests", None, whole),
    ("Refused: caller's limit", "requested_too_long_requests", None, whole),
    ("Clamping would serve", "clamp_saves_requests", None, whole),
    ("Clamped", "clamped_requests", None, whole),
    ("Compacted", "compacted_requests", None, whole),
    ("Sessions cut", "sessions_cut", "cut_change_sessions", whole),
    ("Later turns lost", "lost_requests", "lost_change_requests", whole),
    ("Outputs truncated", "truncated_requests", "truncated_change_requests", whole),
    ("Tokens lost: cut", "lost_cut_tokens", None, whole),
    ("Tokens lost: truncated", "lost_truncated_tokens", None, whole),
    ("Sub-agent calls lost", "sub_agent_lost_requests", None, whole),
    ("Output still made", "served_output_ratio", None, percent),
)
TIMES: tuple[Cell, ...] = (
    *(
        (f"{name.upper()} {stat}", f"{name}_{stat}_s", f"{name}_p95_change_s" if stat == "p95" else None, seconds)
        for name in ("ttft", "tpot", "e2e")
        for stat in ("p50", "p95", "p99")
    ),
    ("Queue refused", "queue_refused_requests", None, whole),
    ("Timed out", "timed_out_requests", None, whole),
    ("Preempted", "preempted_requests", None, whole),
)


def first_table(frame: pl.DataFrame, *, has_deployment: bool = True, is_whole: bool = False, note: str = "") -> Table:
    """Today beside each scenario of every deployment: what a manager reads; `is_whole` with every column."""
    paid = AUTOSCALED if is_autoscaled(frame) else ()
    cells = (RUN, *FLEET, *paid, *SERVICE, *LOSSES)
    always = cells if is_whole else (RUN, *FLEET)
    title = "Today beside each scenario"
    return scenario_table(title, frame, cells, has_deployment=has_deployment, always=always, note=note)


def is_autoscaled(frame: pl.DataFrame) -> bool:
    """Whether an autoscaler is among the scenarios."""
    return bool(frame["fixed_fleet_gpu_s"].is_not_null().any())


def autoscaled_table(frame: pl.DataFrame) -> Table:
    """What each autoscaler pays and misses beside the fixed fleet on the same traffic."""
    rows = frame.filter(frame["fixed_fleet_gpu_s"].is_not_null())
    return scenario_table("Autoscaler beside the fixed fleet", rows, (*AUTOSCALED, *FIXED), note=(
        "The fixed fleet is today's, with the scenario's other settings and the same traffic. GPU time of the replay, "
        "from each order of a replica to the end of its last request. Missed: not answered within both objectives."
    ))  # fmt: skip


def lengths_table(frame: pl.DataFrame) -> Table:
    """What max_model_len and the rules for refused turns cost, exactly."""
    return scenario_table("Refused, cut, lost", frame, LENGTHS, note=(
        "Counted from lengths and order alone, so exact. Turns outside sub-agents; sub-agents' calls stand apart. "
        "A refused turn ends its session (rejected_turn=abort) or is sent again compacted (compact)."
    ))  # fmt: skip


def times_table(frame: pl.DataFrame) -> Table:
    """Latency of the replay, and who left or was preempted."""
    return scenario_table("Latency in the replay", frame, TIMES)


def held_table(frame: pl.DataFrame) -> Table:
    """KV held, and the fleet that the traffic needs."""
    return scenario_table("KV and fleet", frame, (*HELD, *FLEET))


def scenario_table(
    title: str,
    frame: pl.DataFrame,
    cells: Sequence[Cell],
    *,
    has_deployment: bool = False,
    note: str = "",
    always: Sequence[Cell] = (),
) -> Table:
    """Rows of mart_scenarios as texts: `difference → value`, or what came of a scenario that did not start.

    Columns that no scenario changes are left out, except those in `always`; the note says which they are.
    """
    told = list(frame.iter_rows(named=True))
    texts = {cell: [cell_text(row, cell) for row in told] for cell in cells if cell[1] in frame.columns}
    same = {cell: words for cell, words in texts.items() if cell not in always and _is_same(told, words)}
    kept = [cell for cell in texts if cell not in same]
    names = [(shortened(row["deployment_id"]), scenario_word(row))[not has_deployment :] for row in told]
    lead = ("Deployment", "Scenario")[not has_deployment :]
    return Table(
        title=title,
        labels=(*lead, *(cell[0] for cell in kept), "Outcome"),
        is_text=(*(True for _ in lead), *(False for _ in kept), True),
        rows=tuple(
            (*name, *(texts[cell][n] for cell in kept), outcome_word(row))
            for n, (name, row) in enumerate(zip(names, told, strict=True))
        ),
        source=SOURCE,
        note=" ".join(words for words in (note, _left_out(told, same)) if words),
    )


def _is_same(told: Sequence[Mapping[str, Any]], texts: Sequence[str]) -> bool:
    """Whether each scenario that was answered has its deployment's figure of today as printed."""
    both = list(zip(told, texts, strict=True))
    today = {row["deployment_id"]: words for row, words in both if row["scenario_id"] == TODAY}
    others = [(row, words) for row, words in both if row["scenario_id"] != TODAY and row["outcome"] == ANSWERED]
    is_today = (words.removeprefix("= ") == today.get(row["deployment_id"]) for row, words in others)
    return bool(others) and all(is_today)


def _left_out(told: Sequence[Mapping[str, Any]], same: Mapping[Cell, Sequence[str]]) -> str:
    """Which columns no scenario changes; with their figures where there is one deployment."""
    if not same:
        return ""
    is_one = len({row["deployment_id"] for row in told}) == 1
    named = (f"{cell[0]} {words[0].removeprefix('= ')}" if is_one else cell[0] for cell, words in same.items())
    return f"As today in every scenario, so left out: {', '.join(named)}."


def cell_text(row: Mapping[str, Any], cell: Cell) -> str:
    """A figure, its difference from today before it: "−24 → 8"; "= 8" where it is today's, "+8" where that is 0."""
    _label, name, difference, show = cell
    if row["is_slo_reachable"] is False and cell in FLEET:
        return OUT_OF_REACH if name == "needed_gpus" else UNKNOWN
    value = row[name]
    if value is None:
        return UNKNOWN
    change = row[difference] if difference is not None and row["scenario_id"] != TODAY else None
    if change is None:
        return show(value)
    told = CHANGES.get(show, show)
    is_too_small = show is seconds and show(value) == show(value - change)
    if is_too_small or not NOT_ZERO.search(told(change)):
        return f"= {show(value)}"
    return signed(change, told) if change == value else f"{signed(change, told)} → {show(value)}"


def signed(change: float, show: Callable[[Any], str]) -> str:
    """A difference with its sign before everything."""
    return f"{'+' if change > 0 else MINUS}{show(abs(change))}"


def scenario_word(row: Mapping[str, Any]) -> str:
    """Name of a scenario, with what is special about it on its curve."""
    marks = [words for flag, words in (("is_knee", "knee"), ("is_first_cut", "first session cut")) if row[flag]]
    name = shortened(row["scenario_id"], SCENARIO_LENGTH)
    return f"{name} ({', '.join(marks)})" if marks else name


def outcome_word(row: Mapping[str, Any]) -> str:
    """What came of a scenario: the replay's verdict, or why there is none."""
    if row["outcome"] != ANSWERED:
        return f"{row['outcome']}: {row['reason_text']}" if row["reason_text"] else str(row["outcome"])
    words = [str(row["verdict"] or row["reason_text"] or "")]
    if row["is_slo_reachable"] is False:
        words.append("SLO out of reach")
    return ", ".join(word for word in words if word)
