"""The same engine without the bookkeeping: numba, but every step walks the running list. What the kernel is timed by.

One replica, chunked prefill, blocks, preemption, first come first served; no options. Kept as fast as walking can be:
plain arrays, no time-outs, sessions or series to look after.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit


class Requests(NamedTuple):
    """One element a request, whole numbers; `waiting` is a queue with room at its front for preempted ones."""

    prompts: np.ndarray
    outputs: np.ndarray
    tokens: np.ndarray
    target: np.ndarray
    made: np.ndarray
    held: np.ndarray
    chunk: np.ndarray
    running: np.ndarray
    waiting: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def walk(arrived, prompts, outputs, seats, budget, units, block, costs, first_token, end):  # noqa: PLR0917
    """Steps taken; first_token and end are filled. `costs` are the first eight of StepCosts' dense fields."""
    rows = len(arrived)
    r = Requests(
        prompts,
        outputs,
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(rows, dtype=np.int64),
        np.zeros(seats, dtype=np.int64),
        np.zeros(rows + seats, dtype=np.int64),
    )
    front, back, count, free, coming, steps, clock, low = seats, seats, 0, units, 0, 0, 0.0, 0.0
    while coming < rows or count > 0 or back > front:
        if count == 0 and back == front and arrived[coming] > clock:
            clock, low = arrived[coming], 0.0
        while coming < rows and arrived[coming] <= clock:
            r.waiting[back] = coming
            back += 1
            coming += 1
        budget_left, had, count, free, front = schedule_running(r, block, budget, count, free, front)
        if count == had:
            count, free, front = admit(r, block, budget_left, seats, count, free, front, back)
        corrected = step_s(r, costs, count) + low
        clock, low = clock + corrected, corrected - ((clock + corrected) - clock)
        steps += 1
        count, free = finish(r, count, free, clock, first_token, end)
    return steps


@njit(nogil=True, error_model="numpy")
def schedule_running(r, block, budget, count, free, front):  # noqa: PLR0917
    """(budget left, running before, running, free blocks, front of the queue) once each has its chunk."""
    at, had = 0, count
    while at < count:
        own = r.running[at]
        r.chunk[own] = 1 if r.tokens[own] >= r.target[own] else min(r.target[own] - r.tokens[own], budget)
        need = (r.tokens[own] + r.chunk[own] + block - 1) // block - r.held[own]
        while need > free and at < count:
            count -= 1
            last = r.running[count]
            free += r.held[last]
            r.held[last], r.tokens[last] = 0, 0
            front -= 1
            r.waiting[front] = last
        if at >= count:
            break
        free -= need
        r.held[own] += need
        budget -= r.chunk[own]
        at += 1
    return budget, had, count, free, front


@njit(nogil=True, error_model="numpy")
def admit(r, block, budget, seats, count, free, front, back):  # noqa: PLR0917
    """(running, free blocks, front of the queue) after those who fit have been admitted."""
    while back > front and budget > 0 and count < seats:
        own = r.waiting[front]
        total = r.prompts[own] + r.made[own]
        if (total + block - 1) // block > free:
            break
        front += 1
        r.chunk[own] = min(total, budget)
        r.held[own] = (r.chunk[own] + block - 1) // block
        free -= r.held[own]
        r.target[own] = total
        r.running[count] = own
        count += 1
        budget -= r.chunk[own]
    return count, free, front


@njit(nogil=True, error_model="numpy")
def step_s(r, costs, count):
    """Seconds of the step of all running requests, whose tokens it moves on."""
    batch, sampled, decoding, pairs, context = 0, 0, 0, 0.0, 0
    for at in range(count):
        own = r.running[at]
        before = r.tokens[own]
        r.tokens[own] = before + r.chunk[own]
        batch += r.chunk[own]
        context += r.tokens[own]
        pairs += r.chunk[own] * (before + 0.5 * (r.chunk[own] + 1))
        sampled += r.tokens[own] >= r.target[own]
        decoding += before >= r.target[own]
    compute = costs[0] * batch + costs[1] * sampled + costs[2] * pairs
    memory = costs[3] + costs[4] * context
    return max(compute, memory) + costs[5] + costs[6] * decoding + costs[7] * batch


@njit(nogil=True, error_model="numpy")
def finish(r, count, free, clock, first_token, end):  # noqa: PLR0917
    """(running, free blocks) once who made the last token has left."""
    kept = 0
    for at in range(count):
        own = r.running[at]
        r.running[kept] = own
        kept += 1
        if r.tokens[own] < r.target[own]:
            continue
        if r.made[own] == 0:
            first_token[own] = clock
        r.made[own] += 1
        if r.made[own] >= r.outputs[own]:
            end[own] = clock
            free += r.held[own]
            kept -= 1
    return kept, free
