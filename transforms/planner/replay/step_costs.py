"""What a step costs, as the plain numbers the replay's kernel reads: made from the step-time model, no numba here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transforms.planner.steps.step_time import StepModel


class StepCosts(NamedTuple):
    """Seconds each, per unit of work of one step of one replica; all floats, so that they fit one numpy record.

    step_s = max(compute_s, memory_s) + rest_s, where (kernel/clock.py `terms` is the one place that evaluates it)
    compute_s = token_compute_s·tokens + sampled_compute_s·sampled + pair_compute_s·pairs (·ratio in prefill),
    memory_s = weight_memory_s + expert_memory_s·E·(1 − (1 − k/E)^tokens) + context_memory_s·context
        + sequence_memory_s·decoding,
    rest_s = step_s + sequence_s·decoding + token_s·tokens, + mixed_context_s·context of the decoding beside prefills.
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
    prefill_pair_ratio: float = 1.0
    """A prompt's pair against one of a decoding sequence: latent attention multiplies other sizes there."""
    sequence_memory_s: float = 0.0
    """Per decoding sequence: windows and states it reads."""
    mixed_context_s: float = 0.0
    """Per token of KV of the decoding sequences, in a step that also prefills: attention waits for the products."""
    experts: float = 0.0
    """E: routed experts of a layer; 0 for a dense model."""
    experts_per_token: float = 0.0
    """k."""
    expert_memory_s: float = 0.0
    """Per expert that a step touches, over all layers."""


def step_costs(model: StepModel) -> StepCosts:
    """Costs of a step of `model`, in seconds."""
    has_experts = model.experts_per_token > 0
    return StepCosts(
        token_compute_s=model.token_flop / model.flop_per_s,
        sampled_compute_s=model.sampled_compute_s,
        pair_compute_s=model.pair_compute_s,
        weight_memory_s=model.weight_bytes / model.bytes_per_s,
        context_memory_s=model.context_memory_s,
        step_s=model.step_overhead_s,
        sequence_s=model.sequence_overhead_s,
        token_s=model.token_collective_s,
        prefill_pair_ratio=model.prefill_pair_ratio,
        sequence_memory_s=model.sequence_s,
        experts=model.experts if has_experts else 0.0,
        experts_per_token=model.experts_per_token if has_experts else 0.0,
        expert_memory_s=model.expert_s / model.experts if has_experts else 0.0,
    )


def step_s(
    costs: StepCosts, *, decoding: float = 0.0, prefill: float = 0.0, pairs: float = 0.0, context: float = 0.0
) -> float:
    """Seconds of a step of `decoding` sequences with `context` tokens of KV together, or of `prefill` tokens.

    `pairs` are (prompt token × token it attends to), weighted; for averages, where the kernel counts each sequence.
    """
    tokens = prefill + decoding
    attended = pairs if prefill else context
    compute = costs.token_compute_s * tokens + costs.sampled_compute_s * decoding + costs.pair_compute_s * attended
    memory = costs.weight_memory_s + costs.context_memory_s * context + costs.sequence_memory_s * decoding
    if costs.experts > 0.0:
        memory += (
            costs.expert_memory_s * costs.experts * (1.0 - (1.0 - costs.experts_per_token / costs.experts) ** tokens)
        )
    return max(compute, memory) + costs.step_s + costs.sequence_s * decoding + costs.token_s * tokens


def longest_step_s(costs: StepCosts, sequences: int, budget_tokens: int, context_tokens: int, drafts: int) -> float:
    """Seconds that no step takes longer than: a full budget, every sequence at `context_tokens`, both terms added."""
    tokens = budget_tokens + sequences * (1 + drafts)
    compute = costs.token_compute_s * tokens + costs.sampled_compute_s * tokens
    compute += costs.pair_compute_s * tokens * (context_tokens + drafts) * max(1.0, costs.prefill_pair_ratio)
    memory = costs.weight_memory_s + costs.context_memory_s * sequences * (context_tokens + 1)
    memory += costs.expert_memory_s * costs.experts + costs.sequence_memory_s * sequences
    rest = costs.step_s + costs.sequence_s * sequences + costs.token_s * tokens
    return compute + memory + rest + costs.mixed_context_s * sequences * (context_tokens + 1)
