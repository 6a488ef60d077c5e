"""Rows of plan_tool_wait_policies: what each policy holds, costs and saves over the week's tool waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.residency.occupancy import total_block_bytes
from transforms.planner.tool_waits.host_link import copies_of
from transforms.planner.tool_waits.policy import DROP, KEEP, LRU, OFFLOAD, TTL
from transforms.planner.tool_waits.shared_prefix import shared_prefix_tokens
from transforms.planner.tool_waits.ttl_cost import best_ttl_s, break_even_s, gaps_of

if TYPE_CHECKING:
    from transforms.planner.sizing.demands_of_week import WeekDemands
    from transforms.planner.sizing.plan_replicas import Site
    from transforms.planner.tool_waits.host_link import Copies
    from transforms.planner.tool_waits.ttl_cost import Gaps
    from transforms.workload import ToolWaits, Workload

SECOND_US = 1e6
HOUR_S = 3600.0
GIB_BYTES = 1024**3
LATE_QUANTILE = 0.95


def policy_rows(workload: Workload, found: WeekDemands, site: Site) -> list[dict[str, Any]]:
    """One row a policy (`lru`, `drop`, `keep`, and where there is one `ttl`, `offload`); none without tool waits.

    `ttl` stands where a finite time is best, `offload` where the GPU's link to its host is known. GPU·s of all GPUs of
    a replica. What `lru` recomputes is what was evicted: all of it while the pool is full, but for
    the start that other sessions keep alive (`shared_prefix_tokens`); without prefix caching (`drop`) that too.
    """
    waits = workload.tool_waits
    if len(waits.tokens) == 0 or site.now_replicas == 0:
        return []
    wait_s = (waits.end_us - waits.start_us) / SECOND_US
    gaps = gaps_of(site.replica, wait_s, waits.tokens, shared_prefix_tokens(workload))
    full_ratio = pool_full_ratio(found, site)
    best_s = best_ttl_s(gaps, full_ratio)
    ttls_s = {LRU: 0.0, KEEP: math.inf} | ({TTL: best_s} if 0 < best_s < math.inf else {})
    costs = {name: _cost(gaps, name, ttl_s, full_ratio, site) for name, ttl_s in ttls_s.items()}
    costs[DROP] = _cost(gaps_of(site.replica, wait_s, waits.tokens), DROP, 0.0, full_ratio, site)
    engines = site.now_replicas * site.replica.ranks
    copies = None if site.replica.pool is None else copies_of(waits, site.replica.pool, engines)
    notes = {}
    if copies is not None:
        costs[OFFLOAD] = _offload_cost(gaps, copies, full_ratio, site)
        notes[OFFLOAD] = _offload_note(copies, found, site)
    return _rows(costs, ttls_s, full_ratio, notes, waits, site)


def _rows(  # noqa: PLR0917 - the parts of a row
    costs: dict[str, dict[str, float]],
    ttls_s: dict[str, float],
    full_ratio: float,
    notes: dict[str, str],
    waits: ToolWaits,
    site: Site,
) -> list[dict[str, Any]]:
    """`costs` of each policy as rows, each against today's, the cheapest marked."""
    today = LRU if site.replica.has_prefix_caching else DROP
    sums_s = {name: row["held_gpu_s"] + row["recompute_gpu_s"] for name, row in costs.items()}
    best = min(sums_s, key=lambda name: (sums_s[name], name != today))
    middle = float(break_even_s(site.replica, np.array([np.median(waits.tokens)]))[0])
    price = None if site.price is None else site.price.usd_per_hour / HOUR_S
    free = "holding is free here: the pool is never full" if full_ratio == 0 else None
    return [
        {
            "policy": name,
            "ttl_s": ttls_s[name] if name == TTL else None,
            "break_even_s": middle if math.isfinite(middle) else None,
            "pool_full_ratio": full_ratio,
            **row,
            "held_usd": None if price is None else row["held_gpu_s"] * price,
            "saving_gpu_s": sums_s[today] - sums_s[name],
            "saving_usd": None if price is None else (sums_s[today] - sums_s[name]) * price,
            "is_today": name == today,
            "is_best": name == best,
            "note": "; ".join(text for text in (free, notes.get(name)) if text) or None,
        }
        for name, row in costs.items()
    ]


def pool_full_ratio(found: WeekDemands, site: Site) -> float:
    """λ: of the byte·s that keeping every context would hold, the share at seconds when the fleet's KV is full with it.

    Then what is held keeps somebody out; at other times nobody wants the room.
    """
    held = found.tool_waits.block_bytes
    total = float(held.sum())
    if total == 0:
        return 0.0
    capacity = site.now_replicas * site.replica.kv_capacity_bytes
    is_full = total_block_bytes(found.observed_residency) + held >= capacity
    return float(held[is_full].sum()) / total


def _offload_cost(gaps: Gaps, copies: Copies, full_ratio: float, site: Site) -> dict[str, float]:
    """Held until the copy out is done and while the copy back runs; nothing is computed anew.

    The host's memory is taken to be large enough.
    """
    held_s = copies.out_s + copies.back_s
    return {
        "held_byte_s": float((gaps.held_bytes * held_s).sum()),
        "held_gpu_s": full_ratio * float((gaps.holding_ratio * held_s).sum()) * site.replica.gpus,
        "recompute_gpu_s": 0.0,
    }


def _offload_note(copies: Copies, found: WeekDemands, site: Site) -> str:
    """What offloading asks of turns, link and host."""
    late_s = float(np.quantile(copies.delay_s, LATE_QUANTILE))
    busy_ratio = copies.busy_s / (site.now_replicas * site.replica.ranks * max(site.covered_s, 1.0))
    host_bytes = float(found.tool_waits.block_bytes.max()) / site.now_replicas
    return (
        f"turns come up to {late_s:.2g} s later (p95), the link to the host is busy {100 * busy_ratio:.2g} % of the "
        f"time, a replica needs {host_bytes / GIB_BYTES:,.3g} GiB of host memory"
    )


def _cost(gaps: Gaps, name: str, ttl_s: float, full_ratio: float, site: Site) -> dict[str, float]:
    """Bytes held over time, and GPU·s of holding and of computing anew."""
    held_s = np.minimum(gaps.wait_s, ttl_s)
    lost = float(gaps.recompute_s[gaps.wait_s > ttl_s].sum()) if ttl_s else float(gaps.recompute_s.sum())
    gpus = site.replica.gpus
    return {
        "held_byte_s": float((gaps.held_bytes * held_s).sum()),
        "held_gpu_s": full_ratio * float((gaps.holding_ratio * held_s).sum()) * gpus,
        "recompute_gpu_s": lost * gpus * (full_ratio if name == LRU else 1.0),
    }
