"""What resides in the KV cache, second by second and by phase: the sweep over a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from transforms.planner.residency.block_rounding import (
    block_bytes,
    decode_end_bytes,
    decode_mean_bytes,
    ramp_mean_bytes,
)
from transforms.planner.residency.sweep import MICROS, Sweep
from transforms.workload import WEEK_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from numpy.typing import NDArray

    from transforms.planner.residency.timeline import AnyTimeline, Timeline
    from transforms.planner.sizing.replica import Replica
    from transforms.workload import ToolWaits

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

PHASES = ("prefill", "decode", "tool_wait")
PLAN_WINDOW_S = 300
HOUR_S = 3600
LEAST_REQUESTS = 5e-7
"""Half of what one request adds to a 1 s mean by residing for 1 µs: below it nobody does."""

PEAK_RATIO = 0.99
"""The peak of an hour is this quantile of its 1 s means."""


@dataclass(frozen=True, eq=False)
class Stretches:
    """One phase of each request: from when to when it resides, and what it holds at both ends.

    Block bytes run steadily between their two ends, shifted so that their mean is the exact one of the phase.
    """

    start_us: Wholes
    end_us: Wholes
    from_tokens: Reals
    to_tokens: Reals
    from_block_bytes: Reals
    to_block_bytes: Reals


@dataclass(frozen=True, eq=False)
class PhaseResidency:
    """1 s means of one phase over the week, one element a second."""

    linear_bytes: Reals
    block_bytes: Reals
    requests: Reals


Residency = dict[str, PhaseResidency]
"""Phase → its 1 s means."""


def request_residency(timeline: AnyTimeline, replica: Replica, window_s: int = WEEK_S) -> Residency:
    """Prefill and decode residency over [0, window_s) of all attempts of `timeline`."""
    makers = {"prefill": prefill_stretches, "decode": decode_stretches}
    return {
        phase: _swept((make(part, replica) for part in timeline.parts()), replica, window_s)
        for phase, make in makers.items()
    }


def tool_wait_residency(waits: ToolWaits, replica: Replica, window_s: int = WEEK_S) -> PhaseResidency:
    """What pinning P + O through every tool wait would hold (policy `keep`)."""
    block = block_bytes(replica.groups, np.maximum(waits.tokens - 1, 0))
    stretches = Stretches(waits.start_us, waits.end_us, waits.tokens, waits.tokens, block, block)
    return _swept(iter([stretches]), replica, window_s)


def prefill_stretches(timeline: Timeline, replica: Replica) -> Stretches:
    """Prefill of each attempt: from the cached prefix to the whole prompt."""
    low, high = timeline.cached_tokens, timeline.prompt_tokens
    mean = ramp_mean_bytes(replica.groups, low, high)
    ends = _with_mean(block_bytes(replica.groups, low), block_bytes(replica.groups, high), mean)
    return Stretches(timeline.prefill_us, timeline.first_us, low, high, *ends)


def decode_stretches(timeline: Timeline, replica: Replica) -> Stretches:
    """Decode of each attempt: from the prompt to prompt and output."""
    low, output = timeline.prompt_tokens, timeline.output_tokens
    mean = decode_mean_bytes(replica.groups, low, output)
    ends = _with_mean(block_bytes(replica.groups, low), decode_end_bytes(replica.groups, low, output), mean)
    return Stretches(timeline.first_us, timeline.end_us, low, low + output, *ends)


def total_block_bytes(residency: Residency) -> Reals:
    """Block bytes of all phases in `residency` together, one element a second: what is held against capacity."""
    total: Reals = np.sum([phase.block_bytes for phase in residency.values()], axis=0)
    return total


def hour_peaks(series: Reals) -> Reals:
    """Peak of each whole hour of `series` (one element a second): the 99 % quantile of its 1 s means."""
    peaks: Reals = np.quantile(series.reshape(-1, HOUR_S), PEAK_RATIO, axis=1)
    return peaks


def residency_windows(phase: PhaseResidency, started_at: datetime) -> pl.DataFrame:
    """5-minute windows of one phase: mean and largest 1 s mean, block mean, resident requests."""
    linear, block, requests = (
        values.reshape(-1, PLAN_WINDOW_S) for values in (phase.linear_bytes, phase.block_bytes, phase.requests)
    )
    offsets = pl.Series(np.arange(len(linear)) * (PLAN_WINDOW_S * MICROS)).cast(pl.Duration("us"))
    return pl.DataFrame(
        {
            "window_started_at": offsets,
            "residency_mean_bytes": linear.mean(axis=1),
            "residency_max_bytes": linear.max(axis=1),
            "block_mean_bytes": block.mean(axis=1),
            "resident_mean_requests": requests.mean(axis=1),
        }
    ).with_columns(pl.col("window_started_at") + pl.lit(started_at).cast(pl.Datetime("us", "UTC")))


def _swept(parts: Iterator[Stretches], replica: Replica, window_s: int) -> PhaseResidency:
    """1 s means of `parts`; inside the sweep everything is in tokens, block bytes too, so that slopes stay small."""
    sweep = Sweep(window_s, curves=3)
    for part in parts:
        sweep.add(
            part.start_us,
            part.end_us,
            (part.from_tokens, part.to_tokens),
            (part.from_block_bytes / replica.kv_token_bytes, part.to_block_bytes / replica.kv_token_bytes),
            (1.0, None),
        )
    linear, block, requests = _without_residue(sweep.means())
    return PhaseResidency(linear * replica.kv_token_bytes, block * replica.kv_token_bytes, requests)


def _without_residue(means: Reals) -> Reals:
    """`means` (requests last) with what rounding left behind taken out: 0 in seconds in which nobody resides."""
    np.maximum(means, 0.0, out=means)
    np.copyto(means, 0.0, where=means[-1] < LEAST_REQUESTS)
    return means


def _with_mean(first: Reals, last: Reals, mean: Reals) -> tuple[Reals, Reals]:
    shift = mean - (first + last) / 2
    return first + shift, last + shift
