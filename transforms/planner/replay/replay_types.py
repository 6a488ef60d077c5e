"""What goes into a replay and what comes out: trace columns, engine settings, KV pool, results per request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from transforms.planner.fleet_control.autoscaler import Autoscaling
    from transforms.planner.memory.kv_result import KvGroup

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int32]
    Counts = NDArray[np.int64]

NO_LIMIT = 1 << 30
"""A count no engine reaches: the value of a setting that limits nothing."""


class Status(IntEnum):
    """How a request ended; those above COMPLETED are misses (`NOT_SENT` never arrived: an earlier turn failed)."""

    IN_FLIGHT = 0
    COMPLETED = 1
    TIMED_OUT = 2
    PROMPT_TOO_LONG = 3
    REQUESTED_TOO_LONG = 4
    QUEUE_FULL_REQUESTS = 5
    QUEUE_FULL_TOKENS = 6
    LARGER_THAN_POOL = 7
    NOT_SENT = 8


REJECTED = (
    Status.PROMPT_TOO_LONG,
    Status.REQUESTED_TOO_LONG,
    Status.QUEUE_FULL_REQUESTS,
    Status.QUEUE_FULL_TOKENS,
    Status.LARGER_THAN_POOL,
)


class Router(IntEnum):
    """Which replica a request goes to."""

    ROUND_ROBIN = 0
    RANDOM = 1
    LEAST_OUTSTANDING = 2
    SESSION_AFFINITY = 3
    """The first turn goes to the least outstanding, later ones follow; requests without a session likewise."""
    PREFIX_AFFINITY = 4
    """Longest cached prefix; least outstanding where that is too far behind or nobody has any."""


class Caching(IntEnum):
    """What prefix caching goes by."""

    OFF = 0
    BLOCK_IDS = 1
    SESSION = 2


class RequestedRule(IntEnum):
    """What a front end does with prompt + requested output above max_model_len."""

    IGNORE = 0
    REJECT = 1
    CLAMP = 2


def _no_wholes() -> Wholes:
    return np.zeros(0, dtype=np.int32)


def _no_reals() -> Reals:
    return np.zeros(0)


def _no_counts() -> Counts:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TraceColumns:
    """Requests in the order of arrival, one element each; an optional column of length 0 is absent.

    A request with `parent` ≥ 0 is caused by that (earlier) request: it arrives `delay_s` after the parent's completion,
    or after its arrival where `from_start` is set (sub-agents, overlapping calls). All others arrive at `arrived_s`;
    among these `arrived_s` never falls. For caused requests `arrived_s` is not read.
    """

    arrived_s: Reals
    prompt_tokens: Wholes
    """≥ 1, cached ones included."""
    output_tokens: Wholes
    """What the model would say without a limit; below 1 counts as 1 (the prefill alone)."""
    requested_tokens: Wholes = field(default_factory=_no_wholes)
    """The caller's own limit of output; −1 where unknown."""
    session: Wholes = field(default_factory=_no_wholes)
    """Session number 0 … sessions − 1; −1 for none."""
    parent: Wholes = field(default_factory=_no_wholes)
    delay_s: Reals = field(default_factory=_no_reals)
    from_start: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    is_tool_wait: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Whether `delay_s` is a wait for tools: what the engine may keep the session's KV for."""
    block_offsets: Counts = field(default_factory=_no_counts)
    """rows + 1 offsets into `block_ids`."""
    block_ids: Wholes = field(default_factory=_no_wholes)
    """Prefix blocks of each prompt as numbers 0 … ids − 1; only whole blocks of `Settings.prefix_block_tokens`."""
    shared_tokens: Wholes = field(default_factory=_no_wholes)
    """For `Caching.SESSION`: tokens this prompt has in common with the session's context so far; absent: all of it."""

    @property
    def rows(self) -> int:
        """Requests of the trace."""
        return len(self.arrived_s)


@dataclass(frozen=True)
class Pool:
    """KV memory of one replica in units: whole blocks where all groups share one size, else bytes.

    A request of t tokens holds Σ over groups of fixed + min(⌈t/block⌉, max_blocks)·units.
    """

    units: int
    block_tokens: tuple[int, ...] = (16,)
    max_blocks: tuple[int, ...] = (NO_LIMIT,)
    """`NO_LIMIT` for none."""
    units_per_block: tuple[int, ...] = (1,)
    fixed_units: int = 0
    host_s_per_unit: float = 0.0
    """Seconds to move a unit to the memory of the host, or back; 0: unknown."""


def pool_of(groups: Sequence[KvGroup], pool_bytes: int, unit_bytes: int = 1) -> Pool:
    """Pool of `pool_bytes` for the groups of the KV account, in units of `unit_bytes`; groups of a kind are merged."""
    merged: dict[tuple[int, int], int] = {}
    for group in groups:
        kind = (group.block_tokens, NO_LIMIT if group.max_blocks is None else group.max_blocks)
        merged[kind] = merged.get(kind, 0) + group.bytes_per_block
    merged = {kind: size for kind, size in merged.items() if size > 0 and kind[1] > 0}
    return Pool(
        units=pool_bytes // unit_bytes,
        block_tokens=tuple(block for block, _ in merged),
        max_blocks=tuple(most for _, most in merged),
        units_per_block=tuple(-(-size // unit_bytes) for size in merged.values()),
        fixed_units=-(-sum(group.fixed_bytes for group in groups) // unit_bytes),
    )


@dataclass(frozen=True)
class Settings:
    """One engine, its replicas and what is asked of them; names are vLLM's where it has one."""

    pool: Pool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int = NO_LIMIT
    requested_rule: RequestedRule = RequestedRule.IGNORE
    reserve_full_prompt: bool = True
    lone_request_exempt: bool = True
    async_lag_steps: int = 0
    """0, or 1: a busy engine decides on a step when the one before it begins. Who came later waits for the next one,
    a request counts as scheduled from then on, and one that ended keeps its seat and blocks for a step."""
    watermark: float = 0.0
    """Share of the pool kept free at admission while another request runs."""
    long_prefill_token_threshold: int = 0
    """0: none."""
    max_num_queued_reqs: int = NO_LIMIT
    """Waiting requests of one replica; a further one is rejected at arrival."""
    max_num_queued_tokens: int = NO_LIMIT
    """Prompt tokens waiting in one replica, the new one's included."""
    timeout_s: float = np.inf
    """After this long without a complete answer the client leaves."""
    speculative_tokens: int = 0
    acceptance_ratio: float = 0.0
    """Drafted tokens that are accepted, on average: a step advances a sequence by 1 + tokens × ratio."""
    replicas: int = 1
    """Engines, each with its own pool, seats and queue: data-parallel ranks are engines."""
    ranks: int = 1
    """Engines that are paid for as one replica."""
    router: Router = Router.ROUND_ROBIN
    affinity_slack_requests: int = 32
    """Prefix affinity is given up for a replica with that many more requests than the least outstanding one."""
    caching: Caching = Caching.OFF
    prefix_block_tokens: int = 0
    """Tokens of one id of `TraceColumns.block_ids`: a multiple of every block size of the pool."""
    pin_s: float = 0.0
    """Seconds for which cached KV stays referenced after an answer that leads to a tool wait, unless the turn after it
    comes sooner; infinite: until it does. Kept for no longer where running requests lack blocks."""
    offload_s_per_unit: float = 0.0
    """> 0: KV goes to the host's memory in a tool wait and back after it; so long a unit, on one link a replica."""
    failure_ends_session: bool = True
    """Requests caused by one that was rejected or timed out are never sent; else they follow its end as if it were."""
    closed_loop_requests: int = 0
    """> 0: arrival times are not read; so many requests are in the system, the next enters when one leaves."""
    autoscaling: Autoscaling | None = None
    """Rules by which replicas come and go; `replicas` are there at the start."""
    seed: int = 0
    """Of the random router."""
    series: bool = False
    """Whether to sample the state each second."""

    def on_replicas(self, count: int) -> Settings:
        """The same on `count` replicas, each with an engine for every data-parallel rank."""
        return replace(self, replicas=count * self.ranks)


@dataclass(frozen=True, eq=False)
class Series:
    """State of all replicas together at the end of each second since the first arrival, and means over that second."""

    t_s: Reals
    running: Counts
    """Requests that hold a seat."""
    waiting: Counts
    used_units: Counts
    """Referenced KV, without blocks that are merely cached."""
    mean_used_units: Reals
    pool_units: int
    """Of all replicas: used_units / pool_units is kv_used_ratio."""


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """One element a request, in the order of the trace; seconds since the request's own arrival, NaN where unknown."""

    status: NDArray[np.int8]
    """A `Status`."""
    arrived_s: Reals
    """When it really arrived (turns of a session move with the answers before them); NaN if never."""
    queue_s: Reals
    """To the start of the first step it was part of."""
    ttft_s: Reals
    e2e_s: Reals
    """To its end; of a timed-out request to when the engine dropped it, of a rejected one 0."""
    output_tokens: Wholes
    """Made."""
    cached_tokens: Wholes
    """Prompt tokens found in the prefix cache at its first admission."""
    preemptions: Wholes
    replica: NDArray[np.int16]
    """−1 where none took it."""
    kv_token_s: Reals
    """∫ tokens with a KV slot dt: times the KV bytes per token this is KV·time, token-linear."""
    kv_unit_s: Reals
    """∫ units of whole blocks dt."""
    kv_shared_unit_s: Reals
    """The same with a prefix block that n refer to, pins among them, counted 1/n to each."""
    paid_replica_s: float
    """Seconds of all replicas: count × makespan; with autoscaling, from each order to the end of its last request."""
    pinned_unit_s: Reals
    """∫ units of whole blocks dt that were kept after it, in the tool wait it led to; length 0 without a policy."""
    makespan_s: float
    """From the first arrival to the last end."""
    preempted: int
    """Preemptions, all requests together."""
    steps: int
    """Engine steps, all replicas together."""
    peak_units: int
    """Most units that one replica had in use at any time, without blocks that are merely cached."""
    jumps: int
    """Stretches of steps the kernel computed at once."""
    series: Series | None = None
