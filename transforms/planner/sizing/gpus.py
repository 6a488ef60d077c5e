"""From demands in replicas to GPUs: whole replicas, spare ones, whole nodes; and which demand binds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDING = 1e-9
"""What a demand may exceed a whole number by without another replica: rounding of sums, not traffic."""

DEMANDS = ("kv", "compute", "latency")

NO_DEMAND = "none"
"""What binds a deployment without usable traffic: nothing; it keeps the replicas it has."""


@dataclass(frozen=True)
class Terms:
    """What turns replicas into GPUs for one deployment."""

    gpus_per_replica: int
    gpus_per_node: int | None
    is_whole_node: bool
    spare_replicas: int


@dataclass(frozen=True)
class Count:
    """A fleet: replicas, the spare ones included, and GPUs, whole nodes where the GPU comes so."""

    replicas: int
    gpus: int


def whole_replicas(demand_replicas: float) -> int:
    """`demand_replicas` rounded up to whole replicas."""
    return math.ceil(demand_replicas * (1 - ROUNDING))


def fleet_for(demands: Sequence[float], terms: Terms) -> Count:
    """Fleet that carries every one of `demands` (replicas; one at least, so as to answer), spare ones on top."""
    replicas = max([1, *map(whole_replicas, demands)]) + terms.spare_replicas
    return Count(replicas, gpus_of(replicas, terms))


def gpus_of(replicas: int, terms: Terms) -> int:
    """GPUs of `replicas` replicas, rounded up to whole nodes where the GPU is had no other way."""
    gpus = replicas * terms.gpus_per_replica
    if not terms.is_whole_node or not terms.gpus_per_node:
        return gpus
    return math.ceil(gpus / terms.gpus_per_node) * terms.gpus_per_node


def binding(demands: dict[str, float | None]) -> str:
    """Name of the demand that asks for most whole replicas.

    Among equals a measured peak (kv, compute) goes before latency, which only comes in whole replicas, and the larger
    of the two before the other.
    """

    def rank(name: str) -> tuple[int, bool, float]:
        value = demands[name] or 0.0
        return whole_replicas(value), name != "latency", value

    return max(DEMANDS, key=rank)


def is_one_lost_ok(unspared: Sequence[float], now_replicas: int) -> bool:
    """Whether today's fleet less one replica still carries the demands, taken here without their headroom."""
    return max((whole_replicas(demand) for demand in unspared), default=0) <= now_replicas - 1
