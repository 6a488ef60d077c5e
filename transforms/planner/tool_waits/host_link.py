"""KV moved to the host's memory while tools run: how long the copies take on a link that they queue on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_types import Pool
    from transforms.workload import ToolWaits

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

SECOND_US = 1e6


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of each tool wait's KV, one element a wait, seconds."""

    out_s: Reals
    """From the end of the answer until the KV has left the GPU: queue and copy."""
    back_s: Reals
    """The copy back alone: what it fills is held meanwhile."""
    delay_s: Reals
    """What the next turn waits for: queue and copy back."""
    busy_s: float
    """Of all links together."""


def copies_of(waits: ToolWaits, pool: Pool, engines: int) -> Copies | None:
    """Copies out and back of every wait over one link an engine, first come first served; None without a link.

    Which engine a session is on the log does not say: sessions are dealt out in turn.
    """
    if pool.host_s_per_unit <= 0 or not len(waits.tokens):
        return None
    copy_s = _units(pool, np.maximum(waits.tokens - 1, 0)) * pool.host_s_per_unit
    session = waits.labels["session_id"].rank("dense").fill_null(0).to_numpy().astype(np.int64)
    asked_s = np.concatenate([waits.start_us, waits.end_us]) / SECOND_US
    both_s, link = np.tile(copy_s, 2), np.tile(session % engines, 2)
    taken_s = np.zeros(len(asked_s))
    for one in range(engines):
        own = np.flatnonzero(link == one)
        order = own[np.argsort(asked_s[own], kind="stable")]
        taken_s[order] = finished_s(asked_s[order], both_s[order]) - asked_s[order]
    out_s, delay_s = np.split(taken_s, 2)
    return Copies(out_s, copy_s, delay_s, float(both_s.sum()))


def finished_s(asked_s: Reals, service_s: Reals) -> Reals:
    """When each of the jobs, in the order of asking, is done by one server, first come first served (Lindley 1952)."""
    worked_s = np.cumsum(service_s)
    ends: Reals = worked_s + np.maximum.accumulate(asked_s - (worked_s - service_s))
    return ends


def _units(pool: Pool, tokens: Reals) -> Reals:
    """Units that contexts of so many tokens hold."""
    kinds = zip(pool.block_tokens, pool.max_blocks, pool.units_per_block, strict=True)
    held = [np.minimum(np.ceil(tokens / block), most) * each for block, most, each in kinds]
    units: Reals = pool.fixed_units + np.sum(held, axis=0)
    return units
