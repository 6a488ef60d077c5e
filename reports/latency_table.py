"""The table of latency: the answered requests, all of them with failures as misses, and what the model gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from reports.blocks import Column, Table, table, text
from reports.marts import rows
from reports.printed import change, percent, seconds, whole, yes_no
from reports.words import measure_word

if TYPE_CHECKING:
    from reports.marts import Marts

MEASURES = ("queue", "prefill", "ttft", "tpot", "e2e")
"""Parts of TTFT before it, in the order of a request's life."""
ANSWERED, EVERY, MODELLED = "answered", "all, failures as misses", "all, modelled"
KINDS = (ANSWERED, EVERY, MODELLED)
"""Whose times a row has, in the order of the rows of one measure."""
QUANTILES = ("p50", "p90", "p95", "p99")


def latency_rows(marts: Marts, deployment_id: str) -> pl.DataFrame:
    """Rows of mart_latency by measure and `kind`, those of all requests below the answered ones where some failed."""
    frame = rows(marts, "mart_latency", deployment_id=deployment_id)
    is_logged, has_failed = pl.col("source") == "logged", pl.col("failed_requests") > 0
    logged = frame.filter(is_logged)
    unjudged = [
        pl.when(has_failed).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("attainment_ratio", "is_slo_met")
    ]
    every = [pl.col(f"latency_all_{name}_s").alias(f"latency_{name}_s") for name in QUANTILES]
    unknown = pl.lit(None, pl.Float64).alias("p95_change_factor")
    return pl.concat([
        logged.with_columns(*unjudged, kind=pl.lit(ANSWERED)),
        logged.filter(has_failed).with_columns(*every, unknown, kind=pl.lit(EVERY)),
        frame.filter(~is_logged).with_columns(kind=pl.lit(MODELLED)),
    ]).sort(
        pl.col("measure").replace_strict({name: n for n, name in enumerate(MEASURES)}, default=len(MEASURES)),
        pl.col("kind").replace_strict({name: n for n, name in enumerate(KINDS)}),
    )  # fmt: skip


def latency(marts: Marts, deployment_id: str) -> Table:
    """One row a measure and kind: quantiles, the objective and the share of the requests that kept it."""
    return table("Latency", latency_rows(marts, deployment_id), [
        Column("measure", "Measure", measure_word, is_text=True),
        Column("kind", "Of the requests", text, is_text=True),
        Column("latency_p50_s", "p50", seconds),
        Column("latency_p90_s", "p90", seconds),
        Column("latency_p95_s", "p95", seconds),
        Column("latency_p99_s", "p99", seconds),
        Column("slo_s", "Objective, p95", seconds),
        Column("attainment_ratio", "In objective", percent),
        Column("is_slo_met", "Met", yes_no),
        Column("timed_requests", "Timed", whole),
        Column("requests", "of requests", whole),
        Column("failed_requests", "Failed", whole),
        Column("p95_change_factor", "p95 since last week", change),
    ], "mart_latency", empty="The log has no times this week.",
        note="Counts requests that the gateway's cache did not answer, as logged; Timed: answered, their time known. "
        "TTFT is queue and prefill; quantiles of parts do not add up. All: – where that quantile is a failure, "
        "or under nine in ten answered are timed. Modelled: the week's hardest window on today's fleet.",
    )  # fmt: skip
