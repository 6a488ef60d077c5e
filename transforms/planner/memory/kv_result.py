"""What the KV account says: bytes, blocks, tokens, concurrency, whether the engine starts, and the groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SEARCH_LIMIT_TOKENS = 1 << 40  # far above any context length


@dataclass(frozen=True)
class KvGroup:
    """A row of dim_kv_groups: what a request of t tokens holds in one group of layers, bytes over the whole engine.

    Held are fixed_bytes + min(ceil(t / block_tokens), max_blocks) · bytes_per_block; max_blocks None is no bound.
    """

    name: str
    block_tokens: int
    max_blocks: int | None
    bytes_per_block: int
    fixed_bytes: int = 0

    def held_bytes(self, tokens: int) -> int:
        """Bytes that a request of `tokens` tokens holds here."""
        blocks = -(-tokens // self.block_tokens)
        return (
            self.fixed_bytes
            + min(blocks, blocks if self.max_blocks is None else self.max_blocks) * self.bytes_per_block
        )


@dataclass(frozen=True)
class KvLine:
    """One line of the sum: so many layers, each with `formula` bytes per token (per request for a state) on one GPU."""

    layers: int
    what: str
    formula: str
    bytes_each: int
    is_per_request: bool = False


@dataclass(frozen=True)
class KvWorking:
    """How the figures come about, in words and numbers; empty where there is nothing to explain."""

    block: str = ""
    states: str = ""
    printed: str = ""
    concurrency: str = ""


@dataclass(frozen=True)
class KvAccount:
    """The KV account of one engine: of a replica, or of each of its data-parallel ranks, which share no KV.

    Bytes `_per_gpu` are of the pipeline stage that holds most; groups of all GPUs of the engine.
    """

    engine: str
    engine_version: str
    rule: str
    gpus: int
    available_bytes_per_gpu: int
    bytes_per_token_per_gpu: int
    bytes_per_token: int
    """Of the whole engine, its tensor-parallel copies included."""
    block_size_tokens: int
    num_blocks: int
    bytes_per_block_per_gpu: int
    bytes_per_block: int
    reported_tokens: int
    """What this engine version prints as its KV cache size."""
    capacity_tokens: int
    """What physically fits while every attention layer keeps it, beside the states of one request."""
    max_model_len: int | None
    blocks_per_request: int | None
    max_concurrency: float | None
    starts: bool
    largest_max_model_len: int
    state_pool_bytes: int
    """Bytes on the whole engine for states that do not share the blocks (SGLang)."""
    groups: tuple[KvGroup, ...]
    state_bytes_per_gpu: int = 0
    """Bytes of the fullest GPU that states take beside the blocks (SGLang), copies for drafts included."""
    data_parallel_size: int = 1
    """Engines of a replica: ranks with a KV cache each."""
    working: KvWorking = KvWorking()
    lines: tuple[KvLine, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def capacity_bytes(self) -> int:
        """KV bytes of the whole engine that blocks and states can fill."""
        return self.num_blocks * self.bytes_per_block + self.state_pool_bytes

    @property
    def replica_gpus(self) -> int:
        """GPUs of a replica, all its data-parallel ranks together."""
        return self.gpus * self.data_parallel_size

    @property
    def replica_capacity_bytes(self) -> int:
        """KV bytes of a replica, all its data-parallel ranks together."""
        return self.capacity_bytes * self.data_parallel_size

    @property
    def replica_capacity_tokens(self) -> int:
        """Tokens that physically fit a replica, all its data-parallel ranks together."""
        return self.capacity_tokens * self.data_parallel_size

    def held_bytes(self, tokens: int) -> int:
        """Bytes that one request of `tokens` tokens holds on the whole engine."""
        return sum(group.held_bytes(tokens) for group in self.groups)


def largest_length(blocks_needed: Callable[[int], int], blocks: int, bound_tokens: int) -> int:
    """Longest request in tokens that `blocks` hold; `bound_tokens` where nothing in it grows; 0 if none fits."""
    if blocks_needed(1) > blocks:
        return 0
    if blocks_needed(_SEARCH_LIMIT_TOKENS) <= blocks:
        return bound_tokens
    fits, fails = 1, _SEARCH_LIMIT_TOKENS
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if blocks_needed(middle) <= blocks:
            fits = middle
        else:
            fails = middle
    return fits
