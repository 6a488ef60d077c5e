"""The replay's settings from an engine's, its KV account, its release's rules and the options of the replay."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from transforms.errors import ConfigError
from transforms.planner.fleet_control.autoscaler import Autoscaling
from transforms.planner.memory.kv_versions import VLLM
from transforms.planner.replay.engine_rules import engine_rules
from transforms.planner.replay.replay_checks import shared_sizes
from transforms.planner.replay.replay_options import REQUESTED
from transforms.planner.replay.replay_types import NO_LIMIT, Caching, RequestedRule, Router, Settings, pool_of
from transforms.planner.tool_waits.policy import DROP, OFFLOAD, policy_of

if TYPE_CHECKING:
    from transforms.fleet import Engine
    from transforms.planner.memory.kv_account import KvAccount
    from transforms.planner.replay.replay_options import ReplayOptions
    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import Pool
    from transforms.planner.tool_waits.policy import Policy

RESERVED_BLOCKS = 1
"""vLLM keeps the first block for itself (v1/core/block_pool.py, null_block)."""


OWN_SESSIONS = 4_000_000
"""Rows × replicas up to which each request without a session has one of its own in the cache (16 bytes)."""


@dataclass(frozen=True)
class KvPool:
    """KV memory of one replica and what its units are worth."""

    pool: Pool
    unit_bytes: int
    blocks: int
    token_bytes: float | None
    """KV bytes per token where every token costs the same; None for windows and states."""


def kv_pool(account: KvAccount, blocks: int | None = None, host_bytes_per_s: float | None = None) -> KvPool:
    """Pool of one replica: of `blocks` blocks as the engine's log counts them, else of the account's own.

    `host_bytes_per_s` is one GPU's link to its host: with policy `offload` all GPUs of a replica move their part.
    """
    count = account.num_blocks if blocks is None else blocks
    usable = count - RESERVED_BLOCKS if account.engine.startswith(VLLM) else count
    if usable < 1:
        raise ConfigError(f"kv_blocks = {count} leaves no block for a request; the engine keeps one for itself")
    sizes = [size for group in account.groups for size in (group.bytes_per_block, group.fixed_bytes) if size > 0]
    unit_bytes = math.gcd(*sizes)
    pool = pool_of(account.groups, usable * account.bytes_per_block + account.state_pool_bytes, unit_bytes)
    if host_bytes_per_s is not None:
        pool = replace(pool, host_s_per_unit=unit_bytes / (host_bytes_per_s * account.gpus))
    is_plain = pool.fixed_units == 0 and all(most >= NO_LIMIT for most in pool.max_blocks)
    each = sum(size * unit_bytes / tokens for tokens, size in zip(pool.block_tokens, pool.units_per_block, strict=True))
    return KvPool(pool, unit_bytes, count, each if is_plain else None)


def replay_settings(
    engine: Engine, options: ReplayOptions, pool: Pool, max_model_len: int | None, trace: ReplayTrace
) -> Settings:
    """Settings for replaying `trace`; ConfigError for what the replay does not model."""
    if not engine.enable_chunked_prefill:
        raise ConfigError("enable_chunked_prefill = false is not modelled: the replay's engine prefills in chunks")
    rules = engine_rules(engine.version if engine.name == VLLM else None)
    lag = rules.async_lag_steps if engine.async_scheduling is None else int(engine.async_scheduling)
    policy = policy_of(options.tool_wait_policy, engine)
    return Settings(
        pool=pool,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=NO_LIMIT if max_model_len is None else max_model_len,
        requested_rule=RequestedRule(REQUESTED.index(options.requested_output)),
        reserve_full_prompt=_either(options.reserve_full_prompt, rules.reserve_full_prompt),
        lone_request_exempt=_either(options.lone_request_exempt, rules.lone_request_exempt),
        async_lag_steps=lag if options.async_lag_steps is None else options.async_lag_steps,
        watermark=options.watermark_ratio,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        max_num_queued_reqs=_limit(options.max_num_queued_reqs),
        max_num_queued_tokens=_limit(options.max_num_queued_tokens),
        timeout_s=math.inf if options.timeout_s is None else options.timeout_s,
        speculative_tokens=engine.speculative_tokens,
        acceptance_ratio=options.acceptance_ratio,
        replicas=options.replicas * engine.data_parallel_size,
        ranks=engine.data_parallel_size,
        router=Router[options.router.upper()],
        affinity_slack_requests=options.affinity_slack_requests,
        caching=Caching.OFF if policy.name == DROP else _caching(engine, options, pool, trace),
        prefix_block_tokens=trace.prefix_block_tokens,
        pin_s=policy.ttl_s,
        offload_s_per_unit=_offload_s(policy, pool),
        autoscaling=_autoscaling(engine, options),
        failure_ends_session=options.failure_ends_session,
        seed=options.seed,
    )


def _autoscaling(engine: Engine, options: ReplayOptions) -> Autoscaling | None:
    if options.autoscale_max_replicas is None:
        return None
    if engine.data_parallel_size > 1:
        raise ConfigError(
            "autoscale_max_replicas with data_parallel_size above 1 is not modelled; leave one of them out"
        )
    return Autoscaling(
        **{f.name: getattr(options, f"autoscale_{f.name}") for f in fields(Autoscaling) if f.name != "tick_s"}
    )


def _offload_s(policy: Policy, pool: Pool) -> float:
    """Seconds a unit takes to the host's memory, 0 for policies that leave it where it is."""
    if policy.name != OFFLOAD:
        return 0.0
    if pool.host_s_per_unit <= 0:
        raise ConfigError("tool_wait_policy = offload: the GPU's entry has no link to its host; add [host] to it")
    return pool.host_s_per_unit


def _either(told: bool | None, usual: bool) -> bool:
    return usual if told is None else told


def _limit(told: int | None) -> int:
    return NO_LIMIT if told is None else told


def _caching(engine: Engine, options: ReplayOptions, pool: Pool, trace: ReplayTrace) -> Caching:
    """Prefix caching by the trace's blocks where they fit the pool's, else by its sessions, rows without one included.

    What a request without a session finds again is its own blocks after a preemption; long traces go without that.
    """
    if options.prefix_caching_by != "auto":
        return Caching[options.prefix_caching_by.upper()]
    if not engine.enable_prefix_caching:
        return Caching.OFF
    sizes = shared_sizes_of(pool)
    if trace.prefix_block_tokens and sizes and trace.prefix_block_tokens % math.lcm(*sizes) == 0:
        return Caching.BLOCK_IDS
    is_short = trace.columns.rows * options.replicas <= OWN_SESSIONS
    return Caching.SESSION if trace.has_sessions or is_short else Caching.OFF


def shared_sizes_of(pool: Pool) -> list[int]:
    """Block sizes of the kinds of `pool` that a prefix cache shares."""
    return shared_sizes(Settings(pool, 1, 1))
