"""Every printed table: which mart, which columns, how each is printed. HTML and Markdown show the same ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import Column, Table, table, text
from reports.marts import ALL, Marts, rows
from reports.printed import (
    change,
    compact,
    figure,
    gib,
    gib_s,
    interval,
    moment,
    percent,
    seconds,
    shortened,
    usd,
    usd_per_hour,
    whole,
    window,
    yes_no,
)
from reports.words import (
    demand_word,
    deployment_word,
    gap_word,
    gpu_word,
    model_word,
    phase_word,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

BRIEF = (
    "Deployment", "Action", "GPUs needed", "Interval", "GPUs now", "Needed last week", "Binds", "Cost now",
    "Cost needed",
)  # fmt: skip
"""Columns of the decisions that a chat shows."""


def lengths(marts: Marts, deployment_id: str) -> Table:
    """Prompt and output lengths of a deployment and of each model it serves, in tokens."""
    frame = rows(marts, "mart_lengths", deployment_id=deployment_id)
    if frame["model"].n_unique() == 2:  # noqa: PLR2004 - one model and its total are the same row twice
        frame = frame.filter(pl.col("model") == ALL)
    return table("Lengths in tokens", _all_first(frame), [
        Column("measure", "Measure", text, is_text=True),
        Column("model", "Model", model_word, is_text=True),
        Column("requests", "Requests", whole),
        Column("length_mean_tokens", "Mean", whole),
        Column("length_p50_tokens", "p50", whole),
        Column("length_p90_tokens", "p90", whole),
        Column("length_p95_tokens", "p95", whole),
        Column("length_p99_tokens", "p99", whole),
        Column("length_max_tokens", "Max", whole),
        Column("length_total_tokens", "Total", compact),
        Column("unknown_requests", "Unknown", whole),
        Column("censored_requests", "Logged as cut (status length)", whole),
        Column("p50_change_factor", "p50 since last week", change),
        Column("p99_change_factor", "p99 since last week", change),
    ], "mart_lengths",
        note="Counts requests that a replica saw and whose length is known (others: Unknown); those turned away before "
        "it or answered by the gateway's cache are not in it. Logged as cut: the log's own status says so; the table "
        "What ended outputs counts by cause.",
    )  # fmt: skip


def arrivals(marts: Marts, deployment_id: str) -> Table:
    """Arrivals counted in windows of one second to one hour, with their burstiness."""
    frame = rows(marts, "mart_arrivals", deployment_id=deployment_id).sort("window_s")
    doubtful = frame.filter(~pl.col("is_trusted").fill_null(value=True)).height
    return table("Arrivals by counting window", frame, [
        Column("window_s", "Window", window, is_text=True),
        Column("arrivals_mean_requests", "Mean", figure),
        Column("arrivals_peak_requests", "Busiest", whole),
        Column("peak_at", "Busiest at", moment),
        Column("arrivals_peak_requests_per_s", "Busiest per second", figure),
        Column("peak_to_mean_factor", "Busiest ÷ mean", figure),
        Column("dispersion_factor", "Dispersion", figure),
        Column("gap_cv_factor", "Gap CV", figure),
        Column("peak_change_factor", "Busiest since last week", change),
        Column("is_trusted", "Stamps fine enough", yes_no),
    ], "mart_arrivals",
        note="Counts requests as they arrive, failed ones too; those answered by the gateway's cache are not in it. "
        "Dispersion is variance over mean of the counts; it and the gap CV are 1 for a Poisson stream."
        + (" Windows no longer than the steps of the stamps say nothing about burstiness." if doubtful else ""),
    )  # fmt: skip


def demands(marts: Marts, deployment_id: str) -> Table:
    """What asks for how many replicas, and the counts that follow."""
    return table("What asks for replicas", rows(marts, "mart_decision", deployment_id=deployment_id), [
        Column("kv_replicas", "KV memory", figure),
        Column("compute_replicas", "Compute", figure),
        Column("latency_replicas", "Latency", figure),
        Column("binding_demand", "Binds", demand_word, is_text=True),
        Column("needed_replicas", "Needed, spare included", whole),
        Column("now_replicas", "Now", whole),
        Column("is_one_lost_ok", "Holds with one lost", yes_no),
        Column("horizon_gpus", "GPUs at the horizon", whole, is_optional=True),
        Column("envelope_gpus", "GPUs on the back of an envelope", whole),
        Column("envelope_reason", "Why that differs", text, is_text=True),
    ], "mart_decision",
        note="Replicas each demand asks for, before rounding up; KV memory and compute with the headroom on top. "
        "Latency – : no number of replicas meets the objective. Binds: what asks for most whole replicas; of those "
        "that tie, KV memory or compute, the larger, before latency.",
    )  # fmt: skip


def memory(marts: Marts, deployment_id: str) -> Table:
    """KV held at the peak, capacity, pace and price of a deployment."""
    return table("KV at the peak, and cost", rows(marts, "mart_decision", deployment_id=deployment_id), [
        Column("residency_peak_bytes", "Peak at SLO pace", gib),
        Column("residency_peak_observed_bytes", "Peak as logged", gib),
        Column("residency_max_bytes", "Largest instant at SLO pace", gib),
        Column("busiest_hour_at", "Busiest hour", moment),
        Column("kv_capacity_bytes", "A replica holds", gib),
        Column("now_capacity_bytes", "All hold", gib),
        Column("is_censored", "Log limited by the fleet", yes_no),
        Column("planned_batch_requests", "Planned batch", whole),
        Column("step_s", "Step", seconds),
        Column("compute_gpu_s_per_s", "Busy GPUs at the peak", figure),
        Column("output_cost_usd_per_million_tokens", "Per M output tokens", usd),
        Column("session_cost_usd", "Per session", usd),
    ], "mart_decision",
        note="Peaks are 99 % quantiles of the seconds of the busiest hour, without headroom. Costs are those of the "
        "GPUs needed over the covered time.",
    )  # fmt: skip


def kv_time(marts: Marts) -> Table:
    """KV·time by deployment and phase."""
    frame = _totals_last(rows(marts, "mart_kv_time", tenant=ALL), "phase")
    return table("KV·time by deployment and phase", frame, [
        Column("deployment_id", "Deployment", deployment_word, is_text=True),
        Column("phase", "Phase", phase_word, is_text=True),
        Column("attempts_requests", "Attempts", whole),
        Column("unknown_requests", "Unknown", whole),
        Column("kv_time_byte_s", "KV·time", gib_s),
        Column("share_ratio", "Share", percent),
        Column("kv_time_mean_byte_s", "Mean attempt", gib_s),
        Column("kv_block_time_byte_s", "In whole blocks", gib_s),
        Column("kv_shared_time_byte_s", "Shared prefixes once", gib_s),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_kv_time",
        note="Counts attempts that reached a replica and whose lengths are known (others: Unknown); a retry is one "
        "more. Tool waits are counted as gaps, and are no part of the KV·time held.",
    )  # fmt: skip


def failed_kv(marts: Marts) -> Table:
    """KV·time spent on attempts that failed."""
    return table("KV spent on failed attempts", _totals_last(rows(marts, "mart_failed_kv")), [
        Column("deployment_id", "Deployment", deployment_word, is_text=True),
        Column("attempts_requests", "Attempts", whole),
        Column("failed_attempts_requests", "Failed", whole),
        Column("failed_kv_time_byte_s", "Their KV·time", gib_s),
        Column("failed_share_ratio", "Share", percent),
    ], "mart_failed_kv",
        note="Counts attempts that reached a replica and whose prompt is known; requests turned away before it held no "
        "KV.",
    )  # fmt: skip


def tool_waits(marts: Marts, deployment_id: str) -> Table:
    """Gaps inside sessions: tool waits and user think time."""
    frame = rows(marts, "mart_tool_waits", deployment_id=deployment_id).sort("kind")
    return table("Gaps inside sessions", frame, [
        Column("kind", "Kind", gap_word, is_text=True),
        Column("waits_requests", "Gaps", whole),
        Column("wait_p50_s", "p50", seconds),
        Column("wait_p90_s", "p90", seconds),
        Column("wait_p99_s", "p99", seconds),
        Column("wait_max_s", "Max", seconds),
        Column("unknown_requests", "Unknown", whole),
        Column("overlap_requests", "Overlapping", whole),
        Column("logged_ratio", "Kind logged", percent),
        Column("tool_wait_kv_time_byte_s", "KV·time if pinned", gib_s, is_optional=True),
        Column("tool_wait_kv_time_factor", "÷ KV·time held", figure, is_optional=True),
        Column("p50_change_factor", "p50 since last week", change),
    ], "mart_tool_waits", empty="No sessions of more than one turn this week.",
        note="Counts gaps between turns of one session; requests without a session have none. KV·time if pinned is "
        "modelled: what contexts would hold if the engine kept them through the waits. It evicts them when it needs "
        "the room, so this is no part of the KV·time held.",
    )  # fmt: skip


def sessions(marts: Marts, deployment_id: str) -> Table:
    """Sessions: how many turns, how long, how large."""
    return table("Sessions", rows(marts, "mart_sessions", deployment_id=deployment_id), [
        Column("sessions", "Sessions", whole),
        Column("single_sessions", "Of one turn", whole),
        Column("turns_mean_requests", "Turns, mean", figure),
        Column("turns_p50_requests", "p50", figure),
        Column("turns_p99_requests", "p99", figure),
        Column("turns_max_requests", "Max", whole),
        Column("prompt_max_p50_tokens", "Largest prompt, p50", whole),
        Column("prompt_max_p99_tokens", "p99", whole),
        Column("duration_p50_s", "Duration, p50", seconds),
        Column("duration_p99_s", "p99", seconds),
    ], "mart_sessions", empty="The log names no sessions this week.",
        note="Counts sessions with a request this week; requests that name no session are not in it.",
    )  # fmt: skip


def decisions(marts: Marts) -> Table:
    """The decision of every deployment, those that need GPUs first."""
    frame = rows(marts, "mart_decision").sort("short_gpus", "deployment_id", descending=[True, False], nulls_last=True)
    ends = pl.when(pl.col("high_gpus").is_not_null()).then(pl.struct("low_gpus", "high_gpus"))
    frame = frame.with_columns(ends.alias("ends_gpus"))
    return table("GPUs needed against GPUs now", frame, [
        Column("deployment_id", "Deployment", shortened, is_text=True),
        Column("action_text", "Action", text, is_text=True),
        Column("needed_gpus", "GPUs needed", whole),
        Column("ends_gpus", "Interval", _ends, is_optional=True),
        Column("now_gpus", "GPUs now", whole),
        Column("previous_needed_gpus", "Needed last week", whole, is_optional=True),
        Column("binding_demand", "Binds", demand_word, is_text=True),
        Column("headroom_factor", "Headroom over peak", percent),
        Column("headroom_ratio", "Asked", percent),
        Column("is_slo_reachable", "Objective in reach", yes_no, is_text=True),
        Column("kv_time_change_factor", "KV·time since last week", change, is_optional=True),
        Column("now_cost_usd_per_hour", "Cost now", usd_per_hour),
        Column("cost_usd_per_hour", "Cost needed", usd_per_hour),
        Column("provenance", "Label", text, is_text=True),
    ], "mart_decision", empty="No deployment has traffic this week.",
        note="Headroom: what today's replicas offer over the peak of what binds, less one; asked: by the fleet file, "
        "on the same scale. GPUs needed contain it and the spare replica. Interval: 90 %.",
    )  # fmt: skip


def brief_decisions(marts: Marts) -> Table:
    """The decision of every deployment in as few columns as a chat shows; reasons and confidence stand below it."""
    whole_table = decisions(marts)
    kept = [n for n, label in enumerate(whole_table.labels) if label in BRIEF]
    return replace(
        whole_table,
        labels=tuple(whole_table.labels[n] for n in kept),
        is_text=tuple(whole_table.is_text[n] for n in kept),
        rows=tuple(tuple(row[n] for n in kept) for row in whole_table.rows),
        note="",
    )


def _ends(ends: Mapping[str, int] | None) -> str:
    """Both ends of a row's interval."""
    return interval(ends["low_gpus"], ends["high_gpus"]) if ends else interval(None, None)


def fleet(marts: Marts) -> Table:
    """GPUs and cost of all planned deployments together, by GPU type."""
    frame = rows(marts, "mart_fleet").sort(pl.col("gpu_id") == ALL, "gpu_id")
    return table("GPUs by type", frame, [
        Column("gpu_id", "GPU", gpu_word, is_text=True),
        Column("deployments", "Deployments", whole),
        Column("now_gpus", "GPUs now", whole),
        Column("needed_gpus", "GPUs needed", whole),
        Column("previous_needed_gpus", "Needed last week", whole),
        Column("now_cost_usd_per_hour", "Cost now", usd_per_hour),
        Column("cost_usd_per_hour", "Cost needed", usd_per_hour),
    ], "mart_fleet", note="Sums over deployments; a cost only where each of them has a price.")  # fmt: skip


def _all_first(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort(pl.col("measure"), pl.col("model") != ALL, pl.col("model"), descending=[True, False, False])


def _totals_last(frame: pl.DataFrame, *then: str) -> pl.DataFrame:
    """Rows by deployment, then `then`; those of all deployments last, or not at all where there is only one."""
    if frame["deployment_id"].n_unique() == 2:  # noqa: PLR2004 - one deployment and its total are the same row twice
        frame = frame.filter(pl.col("deployment_id") != ALL)
    return frame.sort(pl.col("deployment_id") == ALL, "deployment_id", *then)
