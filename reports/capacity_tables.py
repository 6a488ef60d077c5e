"""Tables on what a replica takes: its two capacities, and the batch sizes that mean something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import Column, Table, table
from reports.marts import engine_word, rows
from reports.printed import figure, percent, seconds, whole, yes_no

if TYPE_CHECKING:
    from reports.marts import Marts


def capacity(marts: Marts, deployment_id: str) -> Table:
    """What one replica takes: requests that may reside, and the open-loop rate it sustains; how much more the fleet."""
    return table("Capacity of a replica", rows(marts, "mart_decision", deployment_id=deployment_id), [
        Column("resident_requests", "Requests that may reside", whole),
        Column("planned_batch_requests", "Of these at once, planned", whole),
        Column("sustained_low_requests_per_s", "Sustains, requests/s", figure),
        Column("sustained_high_requests_per_s", "Fails from, requests/s", figure),
        Column("slo_missed_factor", "Needed fleet first misses at, times the traffic", figure),
    ], "mart_decision",
        note="A stock and a rate: no minimum of both means anything. Rates are open loop, replayed on one replica's "
        "share of the hardest hour with both objectives kept; – : not replayed, or beyond 32 times the traffic. A "
        "fleet spreads its sessions and takes more a replica than one alone: the curve of its rate says how much.",
    )  # fmt: skip


def batches(marts: Marts, deployment_id: str) -> Table:
    """Batch sizes that mean something: recommended, today's, the turning point, those replayed under a burst."""
    frame = rows(marts, "mart_batch_curve", deployment_id=deployment_id).sort("batch_requests")
    named = pl.any_horizontal(
        "is_recommended", "is_today", "is_turning_point", pl.col("burst_miss_ratio").is_not_null()
    )
    engine = engine_word(marts, deployment_id)
    whose = "" if engine == "replica" else f"Of one {engine}. "
    return table("Batch sizes (max_num_seqs)", frame.filter(named), [
        Column("batch_requests", "Batch", whole),
        Column("throughput_tokens_per_s", "Tokens/s", whole),
        Column("tpot_s", "TPOT", seconds),
        Column("ttft_s", "TTFT, no queue", seconds),
        Column("rule_of_thumb_factor", "2B/(B+1)", figure),
        Column("is_kv_ok", "Fits KV", yes_no),
        Column("is_slo_ok", "Keeps the objectives", yes_no),
        Column("is_recommended", "Recommended", yes_no),
        Column("is_today", "Today", yes_no),
        Column("is_turning_point", "Turning point", yes_no),
        Column("burst_miss_ratio", "Misses in a burst", percent),
        Column("burst_preempted_requests", "Preempted in it", whole),
    ], "mart_batch_curve",
        note=f"{whose}Burst: twice a replica's share of the hardest hour, replayed with max_num_seqs at that batch. "
        "2B/(B+1) is a rule of thumb that never exceeds 2. Turning point: the last batch that gains as much throughput "
        "as it costs in TPOT.",
        empty="Nothing decodes this week.",
    )  # fmt: skip
