"""What a step costs, as the plain numbers the replay's kernel reads: made from the step-time model, no numba here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transforms.planner.step_time import StepModel


class StepCosts(NamedTuple):
    """Seconds each, per unit of work of one step of one replica; all floats, so that they fit one numpy record.

    step_s = max(compute_s, memory_s) + rest_s, where (kernel/clock.py `terms` is the one place that evaluates it)
    compute_s = token_compute_s·tokens + sampled_compute_s·sampled + pair_compute_s·pairs,
    memory_s = weight_memory_s + expert_memory_s·E·(1 − (1 − k/E)^tokens) + context_memory_s·context,
    rest_s = step_s + sequence_s·decoding + token_s·tokens.
    """

    token_compute_s: float
    """Per token of the step, prefill and decode alike."""
    sampled_compute_s: float
    """Per sampled position."""
    pair_compute_s: float
    """Per (new token × token it attends to)."""
    weight_memory_s: float
    """Per step: the weights every step reads."""
    context_memory_s: float
    """Per token of KV that is read."""
    step_s: float = 0.0
    """Per step: launch, scheduling, latency of the collectives."""
    sequence_s: float = 0.0
    """Per decoding sequence."""
    token_s: float = 0.0
    """Per token: collectives."""
    experts: float = 0.0
    """E: routed experts of a layer; 0 for a dense model."""
    experts_per_token: float = 0.0
    """k."""
    expert_memory_s: float = 0.0
    """Per expert that a step touches, over all layers."""


def step_costs(model: StepModel) -> StepCosts:
    """Costs of a step of `model`, in seconds."""
    return StepCosts(
        token_compute_s=model.token_flop / model.flop_per_s,
        sampled_compute_s=model.sampled_flop / model.flop_per_s,
        pair_compute_s=model.pair_flop / model.flop_per_s,
        weight_memory_s=model.weight_bytes / model.bytes_per_s,
        context_memory_s=model.kv_token_bytes / model.bytes_per_s,
        step_s=model.step_overhead_s,
        sequence_s=model.sequence_overhead_s,
        token_s=model.token_collective_s,
    )


def longest_step_s(costs: StepCosts, sequences: int, budget_tokens: int, context_tokens: int, drafts: int) -> float:
    """Seconds that no step takes longer than: a full budget, every sequence at `context_tokens`, both terms added."""
    tokens = budget_tokens + sequences * (1 + drafts)
    compute = costs.token_compute_s * tokens + costs.sampled_compute_s * tokens
    compute += costs.pair_compute_s * tokens * (context_tokens + drafts)
    memory = costs.weight_memory_s + costs.context_memory_s * sequences * (context_tokens + 1)
    memory += costs.expert_memory_s * costs.experts
    return compute + memory + costs.step_s + costs.sequence_s * sequences + costs.token_s * tokens
