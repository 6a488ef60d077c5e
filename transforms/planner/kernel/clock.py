"""Time: what one step costs, and the compensated sums the clock is made of."""

from __future__ import annotations

import math

from transforms.planner.kernel.compiled import inner, once

FOREVER = 1 << 40
"""Steps: more than any jump takes."""


@once
def terms(costs, decoding, prefill, sampled, pairs, context, drafts):
    """(compute base, compute slope, memory base, memory slope, rest), seconds, of a step of a constant batch.

    step_s = max(compute base + compute slope·S, memory base + memory slope·S) + rest, S = Σ contexts of the decoding
    sequences. `prefill` tokens end `sampled` prompts, attend to `pairs` tokens and have `context` tokens of KV.
    """
    each = 1 + drafts
    tokens = prefill + decoding * each
    compute = costs.token_compute_s * tokens + costs.sampled_compute_s * (sampled + decoding * each)
    compute += costs.pair_compute_s * (pairs * costs.prefill_pair_ratio + decoding * (drafts * each) * 0.5)
    memory = costs.weight_memory_s + costs.context_memory_s * context + costs.sequence_memory_s * decoding
    if costs.experts > 0.0:
        untouched = (1.0 - costs.experts_per_token / costs.experts) ** tokens
        memory += costs.expert_memory_s * costs.experts * (1.0 - untouched)
    rest = costs.step_s + costs.sequence_s * decoding + costs.token_s * tokens
    return compute, costs.pair_compute_s * each, memory, costs.context_memory_s, rest


@inner
def added(high, low, value):
    """(high, low) after adding `value`: Kahan's compensated sum, low being what high could not hold."""
    corrected = value + low
    total = high + corrected
    return total, corrected - (total - high)


@inner
def series_sum(steps, first, slope):
    """Seconds of `steps` steps, the first taking `first`, each later one `slope` more."""
    return steps * first + slope * (0.5 * steps * (steps - 1))


@once
def steps_before(high, low, limit, first, slope, most):
    """Steps (1 … most) that begin before `limit`, the first beginning at the clock (high, low), before it."""
    span = limit - high
    if span >= series_sum(most, first, slope) + first:
        return most
    middle = first - 0.5 * slope
    count = math.ceil(2.0 * span / (middle + math.sqrt(middle * middle + 2.0 * slope * span)))
    count = min(max(count, 1), most)
    while count > 1 and high + (series_sum(count - 1, first, slope) + low) >= limit:
        count -= 1
    while count < most and high + (series_sum(count, first, slope) + low) < limit:
        count += 1
    return count


@once
def steps_until_switch(lead, closing, most):
    """Steps (1 … most) in which the term that leads by `lead` ≥ 0 still does, losing `closing` a step."""
    if closing <= 0.0 or lead >= closing * most:
        return most
    return min(most, int(lead / closing) + 1)
