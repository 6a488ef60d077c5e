"""What the planner knows of one replica of a deployment: its clock, its KV memory, its limits and its promise.

Under data parallelism a replica is several engines (ranks): clock, limits and batches are of one of them, KV and GPUs
of all. Work, demands and capacities are counted in replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.fleet import Engine
from transforms.planner.replay.replay_types import pool_of

if TYPE_CHECKING:
    from transforms.planner.memory.kv_result import KvGroup
    from transforms.planner.replay.replay_types import Pool
    from transforms.planner.steps.step_time import StepModel


@dataclass(frozen=True)
class Replica:
    """One replica: all its GPUs together."""

    step: StepModel
    """Of one rank."""
    groups: tuple[KvGroup, ...]
    """Block account of the rank that has a request."""
    kv_token_bytes: int
    kv_capacity_bytes: int
    """Of all ranks together; so the next one."""
    kv_capacity_tokens: int
    max_num_seqs: int
    """Of one rank; so the next two."""
    max_num_batched_tokens: int
    max_model_len_tokens: int | None
    has_prefix_caching: bool
    gpus: int
    ttft_p95_s: float
    tpot_p95_s: float
    window_s: int
    """Span the objective is judged over."""
    engine: Engine = field(default_factory=Engine)
    """What schedules: its release and its switches; the limits above are those that count."""
    pool: Pool | None = None
    """KV memory of one rank as the replay holds it; None: its share of the capacity above, whole blocks."""
    mixed_context_factor: float = 0.0
    """Of the replay's step costs: context read once more in steps that also prefill."""

    @property
    def ranks(self) -> int:
        """Data-parallel ranks: engines, each with its own KV cache and scheduler."""
        return self.engine.data_parallel_size

    @property
    def rank_capacity_tokens(self) -> int:
        """Tokens that fit the KV cache of one rank."""
        return self.kv_capacity_tokens // self.ranks

    @property
    def rank_pool(self) -> Pool:
        """KV memory of one rank as the replay holds it."""
        return self.pool or pool_of(self.groups, self.kv_capacity_bytes // self.ranks)
