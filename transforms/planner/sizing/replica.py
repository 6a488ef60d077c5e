"""What the planner knows of one replica of a deployment: its clock, its KV memory, its limits and its promise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.fleet import Engine

if TYPE_CHECKING:
    from transforms.planner.memory.kv_result import KvGroup
    from transforms.planner.replay.replay_types import Pool
    from transforms.planner.steps.step_time import StepModel


@dataclass(frozen=True)
class Replica:
    """One replica: all its GPUs together."""

    step: StepModel
    groups: tuple[KvGroup, ...]
    """Block account of the whole replica."""
    kv_token_bytes: int
    kv_capacity_bytes: int
    kv_capacity_tokens: int
    max_num_seqs: int
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
    """KV memory as the replay holds it; None: the capacity above, whole blocks."""
    mixed_context_factor: float = 0.0
    """Of the replay's step costs: context read once more in steps that also prefill."""
