"""KV·time summed by model, tenant, phase and outcome: the rows of plan_kv_time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from transforms.attempts import parts_of
from transforms.planner.provenance import MEASURED, MODELLED
from transforms.planner.residency.kv_time import decode_kv_time, prefill_kv_time, tool_wait_kv_time
from transforms.planner.residency.shared_blocks import SharedOut, shared_out_at_most, shared_out_by_blocks
from transforms.planner.residency.timeline import has_modelled, joined

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from transforms.planner.residency.kv_time import PhaseKvTime
    from transforms.planner.residency.timeline import AnyTimeline, Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import Workload

    Reals = NDArray[np.float64]
    Flags = NDArray[np.bool_]

EXACT, LOWER_BOUND = "exact", "lower bound"
PHASES = {"prefill": prefill_kv_time, "decode": decode_kv_time}
_GROUP = ["model", "tenant", "is_failed"]
_COUNTS = ("attempts_requests", "lower_bound_requests")
_VALUES = (*_COUNTS, "kv_time_byte_s", "kv_block_time_byte_s", "kv_time_inside_byte_s", "kv_shared_time_byte_s")


class GroupSums:
    """Sums by group, each in the order in which its rows come: equal rows give equal bytes, in whatever parts."""

    def __init__(self, keys: pl.DataFrame) -> None:
        """Start with nothing in the groups of `keys`, one row each."""
        self.keys = keys
        self._numbered = keys.with_row_index("group")
        self._sums: dict[str, NDArray[Any]] = {name: np.zeros(keys.height) for name in _VALUES}

    def add(self, keys: pl.DataFrame, taken: Flags, is_bound: Flags, held: PhaseKvTime, shared: Reals | None) -> None:
        """Add rows: what counts of those `taken` and, inside the week, of all."""
        coded = keys.join(self._numbered, on=_GROUP, how="left", nulls_equal=True, maintain_order="left")
        groups = coded["group"].to_numpy().astype(np.int64)
        own = (taken, taken & is_bound, taken * held.linear_byte_s, taken * held.block_byte_s, held.inside_byte_s)
        columns = dict(zip(_VALUES, own, strict=False)) | ({} if shared is None else {_VALUES[-1]: taken * shared})
        places = np.concatenate([np.arange(self.keys.height), groups])
        for name, values in columns.items():
            before = self._sums[name]
            self._sums[name] = np.bincount(places, np.concatenate([before, values]), minlength=len(before))

    def table(self, *, is_shared_known: bool) -> pl.DataFrame:
        """One row a group with its sums, groups in order."""
        sums = dict(self._sums) if is_shared_known else self._sums | {_VALUES[-1]: None}
        summed = self.keys.with_columns(pl.col(_GROUP[:2]).cast(pl.String)).with_columns(
            pl.lit(None, pl.Float64).alias(name) if values is None else pl.Series(name, values)
            for name, values in sums.items()
        )
        return summed.sort(_GROUP, nulls_last=True)


def kv_time_rows(workload: Workload, timeline: AnyTimeline, replica: Replica, replicas: int) -> pl.DataFrame:
    """Rows of plan_kv_time: attempts of the week by model, tenant and outcome, one row a phase.

    Attempts carried into the week count where they arrived; `kv_time_inside_byte_s` is what all of them, carried ones
    too, hold between the week's start and its end: the sum of the residency. `lower_bound_requests` failed at a time
    the log does not know: what they held until then is counted as their prompt's prefill. `kv_shared_…` is exact with
    prefix block ids in one replica; else a lower bound; NULL where the log says nothing about prefixes. No engine of
    today holds KV through tool waits, so those rows are modelled whatever the log has measured.
    """
    shared_of, reading = _shared_out(workload, timeline, replica, replicas)
    provenance = MODELLED if has_modelled(timeline) else MEASURED
    phases = []
    for phase, sums in _by_phase(workload, timeline, replica, shared_of).items():
        named = _with_unknown(sums.table(is_shared_known=shared_of is not None), workload.left_out)
        phases.append(named.with_columns(pl.lit(phase).alias("phase"), pl.lit(provenance).alias("provenance")))
    hypothetical = {"unknown_requests": 0, "phase": "tool_wait", "provenance": MODELLED}
    kept = _tool_waits(workload, replica)
    phases.append(kept.with_columns(pl.lit(value).alias(name) for name, value in hypothetical.items()))
    is_read = pl.col("kv_shared_time_byte_s").is_not_null()
    return pl.concat(phases, how="diagonal_relaxed").with_columns(
        (pl.col("kv_time_byte_s") / pl.when(pl.col("attempts_requests") > 0).then(pl.col("attempts_requests"))).alias(
            "kv_time_mean_byte_s"
        ),
        pl.when(is_read).then(pl.lit(reading, pl.String)).alias("shared_reading"),
    )


def _by_phase(
    workload: Workload,
    timeline: AnyTimeline,
    replica: Replica,
    shared_of: Callable[[slice, Timeline], SharedOut] | None,
) -> dict[str, GroupSums]:
    """Sums of each phase over the attempts of the week, part by part."""

    def keys(rows: slice) -> pl.DataFrame:
        labels = workload.labels.select("model", "tenant")[rows]
        return labels.with_columns(pl.Series("is_failed", workload.is_failed[rows]))

    groups = pl.concat([keys(slice(0, 0)), *(keys(rows).unique() for rows in parts_of(workload.rows))]).unique()
    phases = {phase: GroupSums(groups) for phase in PHASES}
    for rows, part in zip(parts_of(workload.rows), timeline.parts(), strict=True):
        taken = ~workload.is_carried[rows]
        is_bound = workload.is_failed[rows] & np.isnan(workload.e2e_s[rows])
        out = None if shared_of is None else shared_of(rows, part)
        own = None if out is None else (out.prefill_token_s, out.decode_token_s)
        for place, (phase, held_of) in enumerate(PHASES.items()):
            held = held_of(part, replica)
            shared = None if own is None else _shared(held, own[place], replica)
            phases[phase].add(keys(rows), taken, is_bound, held, shared)
    return phases


def _tool_waits(workload: Workload, replica: Replica) -> pl.DataFrame:
    """What contexts kept through the tool waits would hold."""
    waits = workload.tool_waits
    keys = waits.labels.select("model", "tenant").with_columns(pl.lit(value=False).alias("is_failed"))
    everyone = np.ones(keys.height, dtype=np.bool_)
    sums = GroupSums(keys.unique(_GROUP))
    sums.add(keys, everyone, ~everyone, tool_wait_kv_time(waits, replica), None)
    return sums.table(is_shared_known=False)


def _shared_out(
    workload: Workload, timeline: AnyTimeline, replica: Replica, replicas: int
) -> tuple[Callable[[slice, Timeline], SharedOut] | None, str | None]:
    """What others pay of the attempts of some rows, and how it is to be read; None where the log does not say.

    Blocks are shared across the week: with their ids it is looked at as a whole, not in parts.
    """
    if not replica.has_prefix_caching:
        return lambda _rows, part: SharedOut(part.cached_tokens * 0.0, part.cached_tokens * 0.0), EXACT
    if workload.has_prefix_blocks:
        out = shared_out_by_blocks(joined(timeline.parts(), timeline.at(slice(0, 0))), workload.labels)
        return (
            lambda rows, _part: SharedOut(out.prefill_token_s[rows], out.decode_token_s[rows]),
            EXACT if replicas * replica.ranks == 1 else LOWER_BOUND,
        )
    if workload.has_cached_tokens:
        return lambda _rows, part: shared_out_at_most(part), LOWER_BOUND
    return None, None


def _shared(held: PhaseKvTime, out: Reals, replica: Replica) -> Reals:
    return np.maximum(held.linear_byte_s - replica.kv_token_bytes * out, 0.0)


def _with_unknown(summed: pl.DataFrame, left_out: pl.DataFrame) -> pl.DataFrame:
    joined_rows = summed.join(left_out, on=_GROUP, how="full", nulls_equal=True, coalesce=True)
    return joined_rows.with_columns(pl.col(*_COUNTS, "unknown_requests", *_VALUES[2:-1]).fill_null(0))
