"""The kernel's memory for one replay: settings as a record, empty replicas, the trace's columns as it reads them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from transforms.planner.kernel import layout
from transforms.planner.replay.replay_checks import shared_sizes
from transforms.planner.replay.replay_types import NO_LIMIT, Caching
from transforms.planner.replay.step_costs import longest_step_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.replay.replay_types import Settings, TraceColumns
    from transforms.planner.replay.step_costs import StepCosts

_FIRST_SERIES_S = 3600


class Memory(NamedTuple):
    """The record the kernel is handed, and the tables whose addresses it holds: they live as long as this does."""

    world: NDArray[np.void]
    tables: dict[str, NDArray[Any]]


def allocate(trace: TraceColumns, settings: Settings, costs: StepCosts) -> Memory:
    """Memory of a replay before its first step."""
    world = _world(trace, settings, costs)
    tables = {**_columns(trace), **_tables(trace, settings, world[0])}
    if settings.closed_loop_requests > 0:
        first = min(settings.closed_loop_requests, trace.rows)
        tables["events"]["request"][:first] = np.arange(first)
        world["event_count"] = world["cursor"] = first
    return _addressed(world, tables)


def _addressed(world: NDArray[np.void], tables: dict[str, NDArray[Any]]) -> Memory:
    for name, table in tables.items():
        if table.dtype.itemsize != layout.TABLES[name].itemsize or not table.flags.c_contiguous:
            raise TypeError(f"table {name} is not laid out as the kernel reads it")
        world[name] = table.ctypes.data
    return Memory(world, tables)


def _tables(trace: TraceColumns, settings: Settings, world: np.void) -> dict[str, NDArray[Any]]:
    """Tables the kernel writes, empty: R replicas × Q seats × G kinds × B classes."""
    places = settings.replicas * settings.max_num_seqs
    kinds = len(settings.pool.block_tokens)
    sizes = {
        "kinds": kinds,
        "replicas": settings.replicas,
        "seats": places,
        "seat_kinds": places * kinds,
        "lists": places,
        "end_heap": places,
        "cap_heap": places * kinds if world["has_caps"] else 0,
        "classes": settings.replicas * kinds * int(world["class_count"]),
        "class_counts": settings.replicas * kinds * int(world["class_count"]),
        "events": _most_pending(trace, settings),
        "samples": 0,
        "requests": trace.rows,
        "cache": settings.replicas * int(world["entries"]),
        "shares": settings.replicas * int(world["entries"]) if settings.caching == Caching.BLOCK_IDS else 0,
        "saved": trace.rows if settings.caching == Caching.BLOCK_IDS else 0,
        "held_ids": len(trace.block_ids) if settings.caching == Caching.BLOCK_IDS else 0,
        "homes": _sessions(trace),
        "pins": trace.rows if world["pinning"] else 0,
    }
    tables = {name: np.zeros(size, dtype=layout.TABLES[name]) for name, size in sizes.items()}
    tables["lists"]["vacant"] = np.arange(places)
    tables["cache"]["references"] = -1
    tables["homes"]["v"] = -1
    _fill_pins(tables["pins"], trace)
    _fill_kinds(tables["kinds"], settings)
    _fill_replicas(tables["replicas"], settings)
    return tables


def _world(trace: TraceColumns, settings: Settings, costs: StepCosts) -> NDArray[np.void]:
    pool, world = settings.pool, np.zeros(1, dtype=layout.WORLD)
    start_s = 0.0 if settings.closed_loop_requests > 0 else float(trace.arrived_s[0])
    has_causes = len(trace.parent) > 0
    values = dict(
        costs._asdict(), **_caching(trace, settings),
        timeout_s=settings.timeout_s, acceptance=settings.acceptance_ratio, start_s=start_s, end_s=start_s,
        horizon_s=np.inf, pin_s=settings.pin_s, link_s=settings.offload_s_per_unit, rows=trace.rows, seed=settings.seed,
        units=pool.units, fixed_units=pool.fixed_units, watermark_units=int(settings.watermark * pool.units),
        seat_count=settings.max_num_seqs, budget=settings.max_num_batched_tokens,
        max_model_len=settings.max_model_len, threshold=settings.long_prefill_token_threshold,
        lag=settings.async_lag_steps, drafts=settings.speculative_tokens, max_queued=settings.max_num_queued_reqs,
        max_queued_tokens=settings.max_num_queued_tokens, requested_rule=settings.requested_rule,
        closed_loop=settings.closed_loop_requests, reserve_full=settings.reserve_full_prompt,
        lone_exempt=settings.lone_request_exempt, failure_ends=settings.failure_ends_session, has_causes=has_causes,
        has_feedback=has_causes or settings.closed_loop_requests > 0, has_series=settings.series,
        replica_count=settings.replicas, on_count=settings.replicas, router=settings.router,
        slack=settings.affinity_slack_requests,
        kind_count=len(pool.block_tokens), class_count=max(pool.block_tokens, default=1),
        has_caps=any(most < NO_LIMIT for most in pool.max_blocks),
        has_requested=len(trace.requested_tokens) > 0, has_shared=len(trace.shared_tokens) > 0,
    )  # fmt: skip
    for name, value in values.items():
        world[name] = value
    return world


def _caching(trace: TraceColumns, settings: Settings) -> dict[str, int]:
    """What kernel/prefix.py reads: entries of a replica's cache, tokens and units of an id and of the smallest hit."""
    pool, sizes = settings.pool, shared_sizes(settings)
    step = math.lcm(*sizes) if sizes else 1
    kinds = zip(pool.block_tokens, pool.max_blocks, pool.units_per_block, strict=True)
    units = sum(each * (step // size) for size, most, each in kinds if most >= NO_LIMIT)
    by_ids = settings.caching == Caching.BLOCK_IDS
    entries = {Caching.OFF: 0, Caching.BLOCK_IDS: int(trace.block_ids.max(initial=-1)) + 1}
    return {
        "caching": settings.caching,
        "entries": entries.get(settings.caching, _sessions(trace)),
        "id_tokens": settings.prefix_block_tokens,
        "id_units": settings.prefix_block_tokens // step * units if by_ids else 0,
        "hit_tokens": step,
        "hit_units": units,
        "pinning": pinning(trace, settings),
    }


def pinning(trace: TraceColumns, settings: Settings) -> int:
    """What kernel/pins.py does in tool waits: HOLD, OFFLOAD, or 0 without a cache, a policy or a tool wait."""
    if settings.caching == Caching.OFF or not trace.is_tool_wait.any():
        return 0
    if settings.offload_s_per_unit > 0:
        return 2
    return int(settings.pin_s > 0)


def _sessions(trace: TraceColumns) -> int:
    return int(trace.session.max(initial=-1)) + 1


def _fill_kinds(kinds: NDArray[np.void], settings: Settings) -> None:
    pool = settings.pool
    kinds["block"], kinds["most"], kinds["units"] = pool.block_tokens, pool.max_blocks, pool.units_per_block
    kinds["shift"] = [size.bit_length() - 1 if size & (size - 1) == 0 else -1 for size in pool.block_tokens]


def _fill_replicas(replicas: NDArray[np.void], settings: Settings) -> None:
    replicas["free"] = settings.pool.units
    replicas["vacant"] = settings.max_num_seqs
    replicas["advanced"] = 1
    for name in replicas.dtype.names or ():
        if name.endswith(("head", "tail")):
            replicas[name] = -1


def _fill_pins(pins: NDArray[np.void], trace: TraceColumns) -> None:
    """The turn after its tools for each request that leads to a tool wait."""
    pins["child"] = -1
    if len(pins):
        after = np.flatnonzero(trace.is_tool_wait & (trace.parent >= 0))
        pins["child"][trace.parent[after]] = after


def _most_pending(trace: TraceColumns, settings: Settings) -> int:
    """Most arrivals that can be pending at once."""
    if settings.closed_loop_requests > 0:
        return min(settings.closed_loop_requests, trace.rows) + 1
    return int((trace.parent >= 0).sum()) + 1


def _columns(trace: TraceColumns) -> dict[str, NDArray[Any]]:
    """Columns of the trace as the kernel's types, and what each request causes."""
    return {
        "arrived": np.ascontiguousarray(trace.arrived_s, dtype=np.float64),
        "prompts": np.ascontiguousarray(trace.prompt_tokens, dtype=np.int32),
        "outputs": np.ascontiguousarray(trace.output_tokens, dtype=np.int32),
        "requested": np.ascontiguousarray(trace.requested_tokens, dtype=np.int32),
        "sessions": np.ascontiguousarray(trace.session if len(trace.session) else np.full(1, -1), dtype=np.int32),
        "shared": np.ascontiguousarray(trace.shared_tokens, dtype=np.int32),
        "offsets": np.ascontiguousarray(trace.block_offsets, dtype=np.int64),
        "ids": np.ascontiguousarray(trace.block_ids, dtype=np.int32),
        "causes": _causes(trace),
    }


def _causes(trace: TraceColumns) -> NDArray[np.void]:
    """Per request what it follows, and the linked list of what follows it."""
    causes = np.zeros(len(trace.parent), dtype=layout.CAUSE)
    causes["parent"], causes["delay_s"], causes["from_start"] = trace.parent, trace.delay_s, trace.from_start
    causes["first_child"] = causes["sibling"] = -1
    caused = np.flatnonzero(trace.parent >= 0)
    order = caused[np.argsort(trace.parent[caused], kind="stable")]
    parents = trace.parent[order]
    is_first = np.diff(parents, prepend=-1) != 0
    causes["first_child"][parents[is_first]] = order[is_first]
    causes["sibling"][order[:-1][~is_first[1:]]] = order[1:][~is_first[1:]]
    return causes


def lengthened(memory: Memory, slack_s: int) -> Memory:
    """The same memory with twice the room for the series; its horizon leaves room for a step that begins before it."""
    samples = memory.tables["samples"]
    rows = max(_FIRST_SERIES_S, 2 * len(samples)) + slack_s
    longer = np.zeros(rows, dtype=layout.SAMPLE)
    longer[: len(samples)] = samples
    memory.world["horizon_s"] = memory.world["start_s"] + (rows - slack_s)
    memory.world["sample_count"] = rows
    return _addressed(memory.world, {**memory.tables, "samples": longer})


def series_slack_s(trace: TraceColumns, settings: Settings, costs: StepCosts) -> int:
    """Whole seconds (≥ 2) that no step is longer than."""
    tokens = int(trace.prompt_tokens.max()) + max(int(trace.output_tokens.max()), 1)
    longest = longest_step_s(
        costs, settings.max_num_seqs, settings.max_num_batched_tokens, tokens, settings.speculative_tokens
    )
    return 2 + math.ceil(longest)
