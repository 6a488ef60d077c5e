"""The same engine without the bookkeeping: numba, but every step walks the running list. What the kernel is timed by.

One replica, chunked prefill, blocks, preemption, first come first served; no options. Kept as fast as walking can be:
plain arrays, one function, no time-outs, sessions or series to look after.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def walk(  # noqa: C901, PLR0912, PLR0915, PLR0917
    arrived, prompts, outputs, seats, budget_tokens, units, block, costs, first_token, end
):
    """Steps taken; first_token and end are filled. `costs` are the first eight of StepCosts' dense fields."""
    running = np.zeros(seats, dtype=np.int64)
    tokens, target = np.zeros(len(arrived), dtype=np.int64), np.zeros(len(arrived), dtype=np.int64)
    made, held = np.zeros(len(arrived), dtype=np.int64), np.zeros(len(arrived), dtype=np.int64)
    chunk = np.zeros(len(arrived), dtype=np.int64)
    waiting = np.zeros(len(arrived) + seats, dtype=np.int64)  # a stack at its front: preempted ones come back there
    front, back, count, free, coming, steps = seats, seats, 0, units, 0, 0
    clock, low = 0.0, 0.0
    while coming < len(arrived) or count > 0 or back > front:
        if count == 0 and back == front and arrived[coming] > clock:
            clock, low = arrived[coming], 0.0
        while coming < len(arrived) and arrived[coming] <= clock:
            waiting[back] = coming
            back += 1
            coming += 1
        budget, at, preempted = budget_tokens, 0, False
        while at < count:
            own = running[at]
            chunk[own] = 1 if tokens[own] >= target[own] else min(target[own] - tokens[own], budget)
            need = (tokens[own] + chunk[own] + block - 1) // block - held[own]
            while need > free and at < count:
                preempted = True
                count -= 1
                last = running[count]
                free += held[last]
                held[last], tokens[last] = 0, 0
                front -= 1
                waiting[front] = last
            if at >= count:
                break
            free -= need
            held[own] += need
            budget -= chunk[own]
            at += 1
        while not preempted and back > front and budget > 0 and count < seats:
            own = waiting[front]
            total = prompts[own] + made[own]
            if (total + block - 1) // block > free:
                break
            front += 1
            chunk[own] = min(total, budget)
            held[own] = (chunk[own] + block - 1) // block
            free -= held[own]
            target[own] = total
            running[count] = own
            count += 1
            budget -= chunk[own]
        batch, sampled, decoding, pairs, context = 0, 0, 0, 0.0, 0
        for at in range(count):
            own = running[at]
            before = tokens[own]
            tokens[own] = before + chunk[own]
            batch += chunk[own]
            context += tokens[own]
            pairs += chunk[own] * (before + 0.5 * (chunk[own] + 1))
            sampled += tokens[own] >= target[own]
            decoding += before >= target[own]
        compute = costs[0] * batch + costs[1] * sampled + costs[2] * pairs
        memory = costs[3] + costs[4] * context
        seconds = max(compute, memory) + costs[5] + costs[6] * decoding + costs[7] * batch
        corrected = seconds + low
        later = clock + corrected
        low = corrected - (later - clock)
        clock = later
        steps += 1
        kept = 0
        for at in range(count):
            own = running[at]
            running[kept] = own
            kept += 1
            if tokens[own] < target[own]:
                continue
            if made[own] == 0:
                first_token[own] = clock
            made[own] += 1
            if made[own] >= outputs[own]:
                end[own] = clock
                free += held[own]
                kept -= 1
        count = kept
    return steps
