"""What a closed-loop benchmark shows in its steady state: `concurrency` requests in flight, all of the same lengths.

Every step decodes one token of each resident request. While a request decodes its outputs, each of the others is
replaced once, so as many prefills fall among these steps as others are resident; prompts that meet in a step share it
up to its budget. A token takes its share of steps with and without prefill. The same step model run step by step gives
the same (tests/property/test_closed_loop.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from transforms.planner.steps.step_time import Number, step_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from transforms.planner.steps.step_calibration import StepParameters
    from transforms.planner.steps.step_time import StepModel

BUDGET_TOKENS = 8192.0
"""Prefill tokens of one step: what vLLM and SGLang take on data-centre GPUs where nobody sets it."""


@dataclass(frozen=True, eq=False)
class Load(Generic[Number]):
    """A closed loop: requests in flight, those of them that fit the KV cache, and their lengths."""

    concurrency: Number
    resident: Number
    prompt_tokens: Number
    output_tokens: Number
    waits_for_ranks: Number
    """1 where attention is data parallel, else 0."""


@dataclass(frozen=True, eq=False)
class Steady(Generic[Number]):
    """Means of the steady state."""

    ttft_s: Number
    tpot_s: Number
    output_tokens_per_s: Number


def steady(
    model: StepModel,
    parameters: StepParameters,
    load: Load[Number],
    *,
    largest: Callable[[Number, Number], Number],
    ceiling: Callable[[Number], Number],
) -> Steady[Number]:
    """Steady state of `load` on one replica, for floats (max, math.ceil) or arrays (np.maximum, np.ceil).

    Requests beyond the resident ones queue; so do those whose prompts find no room in the steps of those that decode.
    Their wait follows from Little's law. As arrivals come in bursts, above all at the start, when nobody decodes, a
    prompt waits for the share `burst_ratio` of the others' prefills; the rest of them, no more, fall between its output
    tokens. Measured runs have outputs of 100 tokens and more; for a few tokens the wait of a first token counts steps
    that its own prefill already holds, and is too long.
    """
    nothing, one = 0.0 * load.resident, 0.0 * load.resident + 1
    steps = ceiling(load.prompt_tokens / BUDGET_TOKENS)
    fitting = largest(BUDGET_TOKENS / load.prompt_tokens, one)
    room = fitting / steps
    others = _least(load.resident - 1, load.output_tokens * room, largest)
    decoding, context = others + 1, load.prompt_tokens + load.output_tokens / 2
    decode_s = step_of(model, nothing, decoding, context, nothing, largest=largest)

    def prefill_s(prompts: Number, beside: Number) -> Number:
        chunk_tokens = prompts * load.prompt_tokens / steps
        return steps * step_of(model, chunk_tokens, beside, context, load.prompt_tokens / 2, largest=largest)

    prompts = (1 - parameters.burst_ratio) * others / load.output_tokens
    packed = largest(prompts, one)
    packed_s, mixed = prefill_s(packed, others), prompts / packed
    tpot_s = (1 - mixed * steps) * decode_s + mixed * packed_s
    own_s = prefill_s(one, others)
    waited_steps = parameters.first_token_steps + parameters.data_rank_steps * load.waits_for_ranks
    together = _least(largest(others, one), fitting, largest)
    queued_s = parameters.burst_ratio * others * prefill_s(together, nothing) / together
    first_s = parameters.first_token_s + waited_steps * tpot_s + own_s + queued_s
    cycle_s = first_s + (load.output_tokens - 1) * tpot_s
    return Steady(
        ttft_s=first_s + (load.concurrency / decoding - 1) * cycle_s,
        tpot_s=tpot_s,
        output_tokens_per_s=decoding * load.output_tokens / cycle_s,
    )


def _least(one: Number, other: Number, largest: Callable[[Number, Number], Number]) -> Number:
    return -largest(-one, -other)
