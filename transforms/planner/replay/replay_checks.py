"""What a replay refuses: traces that do not hold together, settings no engine starts with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from transforms.errors import ConfigError, InputError
from transforms.planner.replay.replay_types import NO_LIMIT, Caching, Router

if TYPE_CHECKING:
    from transforms.planner.replay.replay_types import Settings, TraceColumns


def check_trace(trace: TraceColumns, settings: Settings) -> None:
    """Raise InputError where the columns do not hold together."""
    rows = trace.rows
    if rows == 0:
        raise InputError("trace: no requests; nothing to replay")
    if settings.closed_loop_requests > 0 and len(trace.parent) > 0:
        raise ConfigError("replay: a closed loop sends request after request; it cannot keep sessions causal as well")
    if len(trace.prompt_tokens) != rows or len(trace.output_tokens) != rows:
        raise InputError(f"trace: {rows} requests, but other counts of prompt or output lengths")
    optional = (
        trace.requested_tokens,
        trace.session,
        trace.parent,
        trace.delay_s,
        trace.from_start,
        trace.shared_tokens,
        trace.is_tool_wait,
    )
    if any(len(column) not in {0, rows} for column in optional):
        raise InputError(f"trace: columns of unlike length beside {rows} requests")
    if max(trace.prompt_tokens.max(), trace.output_tokens.max()) >= NO_LIMIT // 2:
        raise InputError(f"trace: a request of {NO_LIMIT // 2:,} tokens or more; leave it out")
    if trace.prompt_tokens.min() < 1:
        raise InputError(f"trace: request {int(np.argmax(trace.prompt_tokens < 1))} has no prompt token; leave it out")
    if len({len(trace.parent), len(trace.delay_s), len(trace.from_start)}) > 1:
        raise InputError("trace: parent, delay_s and from_start come together or not at all")
    _check_arrivals(trace)
    _check_tool_waits(trace)
    if settings.caching == Caching.BLOCK_IDS:
        _check_blocks(trace)
    needs_session = settings.caching == Caching.SESSION or settings.router == Router.SESSION_AFFINITY
    if needs_session and len(trace.session) != rows:
        raise InputError("trace: caching and routing by session need the session column")


def _check_tool_waits(trace: TraceColumns) -> None:
    """Raise InputError where a tool wait follows no answer, or two of them the same one."""
    waits = np.flatnonzero(trace.is_tool_wait)
    if len(waits) == 0:
        return
    parents = trace.parent[waits] if len(trace.parent) else np.full(len(waits), -1)
    if parents.min() < 0 or trace.from_start[waits].any() or len(np.unique(parents)) < len(waits):
        raise InputError("trace: each tool wait must follow the end of an answer of its own")
    if len(trace.session) and (trace.session[waits] != trace.session[parents]).any():
        raise InputError("trace: a tool wait lies between two requests of one session")


def _check_blocks(trace: TraceColumns) -> None:
    """Raise InputError where the prefix blocks are not a list of numbers for each request."""
    offsets, ids = trace.block_offsets, trace.block_ids
    if len(offsets) != trace.rows + 1:
        raise InputError("trace: prefix caching by block ids needs block_offsets and block_ids")
    if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any() or ids.min(initial=0) < 0:
        raise InputError("trace: block_offsets must rise from 0 to the count of block_ids, and ids be 0 or more")


def _check_arrivals(trace: TraceColumns) -> None:
    """Raise InputError where requests do not come in order, or are caused by what comes after them."""
    has_causes = len(trace.parent) > 0
    arrived = trace.arrived_s[trace.parent < 0] if has_causes else trace.arrived_s
    ends = arrived[[0, -1]] if len(arrived) else arrived  # between finite ends, times that never fall are finite
    if not np.isfinite(ends).all() or not (arrived[1:] >= arrived[:-1]).all():
        raise InputError("trace: arrival times must be finite and never fall; sort the requests by arrival")
    if min(trace.session.min(initial=-1), trace.parent.min(initial=-1)) < -1:
        raise InputError("trace: session and parent are numbers from 0, or -1 for none")
    if has_causes and (trace.parent >= np.arange(trace.rows)).any():
        raise InputError("trace: a request must stand after the one that causes it")
    if has_causes and not (trace.delay_s[trace.parent >= 0] >= 0).all():
        raise InputError("trace: delays after an earlier request must be 0 or more")


def check_settings(settings: Settings) -> None:
    """Raise ConfigError for settings no engine starts with, or that the replay does not model."""
    each = 1 + settings.speculative_tokens
    if min(settings.max_num_seqs, settings.replicas, settings.pool.units, settings.max_num_batched_tokens) < 1:
        raise ConfigError("replay: max_num_seqs, max_num_batched_tokens, replicas and the KV pool must be at least 1")
    if settings.max_num_batched_tokens < settings.max_num_seqs * each:
        raise ConfigError(
            f"replay: max_num_batched_tokens {settings.max_num_batched_tokens:,} is below max_num_seqs × {each}; "
            f"lower max_num_seqs to {settings.max_num_batched_tokens // each:,} or raise the token budget"
        )
    if settings.async_lag_steps not in {0, 1}:
        raise ConfigError("replay: async_lag_steps is 0 or 1")
    if each > min(settings.pool.block_tokens, default=each):
        raise ConfigError(f"replay: {each} tokens a step do not fit a KV block; lower speculative_tokens")
    if settings.caching == Caching.BLOCK_IDS:
        sizes = shared_sizes(settings)
        if not sizes or settings.prefix_block_tokens < 1 or settings.prefix_block_tokens % math.lcm(*sizes):
            raise ConfigError(
                f"replay: prefix blocks of {settings.prefix_block_tokens} tokens are no multiple of KV blocks of "
                f"{', '.join(map(str, sizes)) or 'no'} tokens"
            )
    if not settings.pin_s >= 0 or not 0 <= settings.offload_s_per_unit < math.inf:
        raise ConfigError("replay: a tool-wait policy keeps KV for 0 seconds or more, and moves it in finite time")
    if settings.timeout_s <= 0:
        raise ConfigError("replay: timeout_s must be above 0")


def shared_sizes(settings: Settings) -> list[int]:
    """Block sizes of the kinds whose blocks a prefix cache shares: those without a window."""
    pool = settings.pool
    return [size for size, most in zip(pool.block_tokens, pool.max_blocks, strict=True) if most >= NO_LIMIT]
