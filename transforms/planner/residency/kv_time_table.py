"""KV·time summed by model, tenant, phase and outcome: the rows of plan_kv_time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.provenance import MEASURED, MODELLED
from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time, tool_wait_kv_time
from transforms.planner.residency.shared_blocks import SharedOut, shared_out_at_most, shared_out_by_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.residency.kv_time import PhaseKvTime
    from transforms.planner.residency.timeline import Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Flags = NDArray[np.bool_]

EXACT, LOWER_BOUND = "exact", "lower bound"
_GROUP = ["model", "tenant", "is_failed"]
_COUNTS = ("attempts_requests", "lower_bound_requests")
_VALUES = (*_COUNTS, "kv_time_byte_s", "kv_block_time_byte_s", "kv_time_inside_byte_s", "kv_shared_time_byte_s")


def kv_time_rows(workload: Workload, timeline: Timeline, replica: Replica, replicas: int) -> pl.DataFrame:
    """Rows of plan_kv_time: attempts of the week by model, tenant and outcome, one row a phase.

    Attempts carried into the week count where they arrived; `kv_time_inside_byte_s` is what all of them, carried ones
    too, hold between the week's start and its end: the sum of the residency. `lower_bound_requests` failed at a time
    the log does not know: what they held until then is counted as their prompt's prefill. `kv_shared_…` is exact with
    prefix block ids in one replica; else a lower bound; NULL where the log says nothing about prefixes. No engine of
    today holds KV through tool waits, so those rows are modelled whatever the log has measured.
    """
    shared, reading = _shared_out(workload, timeline, replica, replicas)
    keys = workload.labels.select("model", "tenant").with_columns(pl.Series("is_failed", workload.is_failed))
    week_rows = ~workload.is_carried
    is_bound = workload.is_failed & np.isnan(workload.e2e_s)
    provenance = MODELLED if timeline.is_modelled.any() else MEASURED
    phases = []
    for phase, held, out in (
        ("prefill", prefill_kv_time(timeline, replica), None if shared is None else shared.prefill_token_s),
        ("decode", decode_kv_time(timeline, replica), None if shared is None else shared.decode_token_s),
    ):
        summed = _summed(keys, held, _shared(held, out, replica), is_bound, week_rows)
        named = _with_unknown(summed, workload.left_out).with_columns(
            pl.lit(phase).alias("phase"), pl.lit(provenance).alias("provenance")
        )
        phases.append(named)
    waits = workload.tool_waits
    held = tool_wait_kv_time(waits, replica)
    wait_keys = waits.labels.select("model", "tenant").with_columns(pl.lit(value=False).alias("is_failed"))
    everyone = np.ones(wait_keys.height, dtype=np.bool_)
    kept = _summed(wait_keys, held, None, ~everyone, everyone)
    hypothetical = {"unknown_requests": 0, "phase": "tool_wait", "provenance": MODELLED}
    phases.append(kept.with_columns(pl.lit(value).alias(name) for name, value in hypothetical.items()))
    is_read = pl.col("kv_shared_time_byte_s").is_not_null()
    return pl.concat(phases, how="diagonal_relaxed").with_columns(
        (pl.col("kv_time_byte_s") / pl.when(pl.col("attempts_requests") > 0).then(pl.col("attempts_requests"))).alias(
            "kv_time_mean_byte_s"
        ),
        pl.when(is_read).then(pl.lit(reading, pl.String)).alias("shared_reading"),
    )


def _shared_out(
    workload: Workload, timeline: Timeline, replica: Replica, replicas: int
) -> tuple[SharedOut | None, str | None]:
    if not replica.has_prefix_caching:
        nothing = timeline.cached_tokens * 0.0
        return SharedOut(nothing, nothing), EXACT
    if workload.has_prefix_blocks:
        return shared_out_by_blocks(timeline, workload.labels), EXACT if replicas == 1 else LOWER_BOUND
    if workload.has_cached_tokens:
        return shared_out_at_most(timeline), LOWER_BOUND
    return None, None


def _shared(held: PhaseKvTime, out: Reals | None, replica: Replica) -> Reals | None:
    return None if out is None else np.maximum(held.linear_byte_s - replica.kv_token_bytes * out, 0.0)


def _summed(keys: pl.DataFrame, held: PhaseKvTime, shared: Reals | None, is_bound: Flags, taken: Flags) -> pl.DataFrame:
    """Sums by group in a fixed order of addition, so that equal input gives equal bytes."""
    groups = keys.unique(_GROUP).sort(_GROUP, nulls_last=True).with_row_index("group")
    coded = keys.join(groups, on=_GROUP, how="left", nulls_equal=True, maintain_order="left")
    codes = coded["group"].to_numpy().astype(np.int64)
    columns = (taken, taken & is_bound, taken * held.linear_byte_s, taken * held.block_byte_s, held.inside_byte_s)
    sums = [np.bincount(codes, column, minlength=groups.height) for column in columns]
    summed = groups.drop("group").with_columns(
        pl.Series(name, values) for name, values in zip(_VALUES[:-1], sums, strict=True)
    )
    if shared is None:
        return summed.with_columns(pl.lit(None, pl.Float64).alias(_VALUES[-1]))
    return summed.with_columns(pl.Series(_VALUES[-1], np.bincount(codes, taken * shared, minlength=groups.height)))


def _with_unknown(summed: pl.DataFrame, left_out: pl.DataFrame) -> pl.DataFrame:
    joined = summed.join(left_out, on=_GROUP, how="full", nulls_equal=True, coalesce=True)
    return joined.with_columns(pl.col(*_COUNTS, "unknown_requests", *_VALUES[2:-1]).fill_null(0))
