"""What waits in a replay, as seconds of one replica's work at the batch its KV allows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from transforms.planner.replay.replay_types import Pool, Status
from transforms.planner.replay.step_costs import StepCosts, step_s

if TYPE_CHECKING:
    from transforms.planner.replay.replay_memory import Memory
    from transforms.planner.replay.replay_types import Settings


def backlog_s(memory: Memory, settings: Settings, costs: StepCosts) -> float:
    """Seconds one replica needs for all that waits: prompts, and outputs as long as those of the requests so far."""
    replicas = memory.tables["replicas"]
    waiting, tokens = int(replicas["waiting"].sum()), int(replicas["waiting_tokens"].sum())
    if waiting == 0:
        return 0.0
    rows = memory.tables["requests"]
    made = rows["made"][rows["status"] == Status.COMPLETED]
    output = float(made.mean()) if len(made) else 1.0
    return request_work_s(settings, costs, tokens / waiting, output) * waiting


def request_work_s(settings: Settings, costs: StepCosts, prompt_tokens: float, output_tokens: float) -> float:
    """Seconds of a replica that a request takes: prompt in full steps, output at the largest batch that fits."""
    budget = settings.max_num_batched_tokens
    pairs = prompt_tokens / 2 * costs.prefill_pair_ratio
    prefill_s = prompt_tokens * step_s(costs, prefill=budget, pairs=budget * pairs, context=budget) / budget
    context = prompt_tokens + output_tokens / 2
    batch = max(1, min(settings.max_num_seqs, settings.pool.units // max(1, pool_units(settings.pool, context))))
    return prefill_s + output_tokens * step_s(costs, decoding=batch, context=batch * context) / batch


def pool_units(pool: Pool, tokens: float) -> int:
    """Units that a request of so many tokens holds."""
    kinds = zip(pool.block_tokens, pool.max_blocks, pool.units_per_block, strict=True)
    return pool.fixed_units + sum(min(math.ceil(tokens / block), most) * each for block, most, each in kinds)
