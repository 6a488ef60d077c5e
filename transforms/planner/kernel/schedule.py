"""One step's schedule: running requests first, preemption from the end of the list, then admission from the queue."""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.pins import release_oldest
from transforms.planner.kernel.pool import drop_full, slots_held, step_units, units_of
from transforms.planner.kernel.prefix import evict, found, keep_computed, take_found
from transforms.planner.kernel.seats import leave, queue_first, take_seat, unqueue_first
from transforms.planner.kernel.tables import lists_at, request_at, seat_at, whole_at

UNCAPPED = 1 << 40


@once
def schedule(s, replica, number):
    """Give every running request its tokens and blocks of the coming step, and admit who still fits."""
    is_lone = s.lone_exempt and replica.running + replica.waiting <= 1
    cap = s.threshold if s.threshold > 0 and not is_lone else UNCAPPED
    budget = s.budget - replica.decoding * (1 + s.drafts)
    if s.has_caps:
        drop_full(s, replica, number)
    need = step_units(s, replica, number)
    if replica.partials > 0:
        left = plan_chunks(s, replica, number, cap, budget)
        need += chunk_units(s, replica, number)
        budget = left
    while need > replica.free and replica.pins > 0:
        release_oldest(s, replica, number)
    replica.has_preempted = need > replica.free
    if replica.has_preempted:
        need = preempt(s, replica, number, need)
    replica.over = 0
    replica.free -= need
    if replica.cached > replica.free:
        evict(s, replica, number)
    replica.prefill = 0
    replica.prefill_pairs = 0.0
    replica.prefill_context = 0
    replica.sampled = 0
    for at in range(number * s.seat_count, number * s.seat_count + replica.partials):
        compute_chunk(s, replica, number, seat_at(s.seats, lists_at(s.lists, at).partial))
    if not replica.has_preempted:
        admit_waiting(s, replica, number, cap, budget)


@once
def admit_waiting(s, replica, number, cap, budget):
    """Admit from the front of the queue who fits; where nothing runs, pins make room."""
    while replica.waiting > 0 and budget > 0 and replica.running < s.seat_count:
        if is_too_early(s, replica):
            break
        chunk = admit(s, replica, number, cap, budget)
        budget -= chunk
        if chunk == 0:
            if replica.running > 0 or replica.pins == 0:
                break
            release_oldest(s, replica, number)


@inner
def is_too_early(s, replica):
    """Whether the first in the queue came after the coming step was decided: with a lag, when the one before began."""
    if s.lag == 0 or replica.waiting == 0:
        return False
    return request_at(s.requests, replica.wait_head).arrived > replica.decided


@once
def evict_before(s, replica, number):
    """Evict what the requests before the one that finds no block have already taken: walked, as preemption is rare."""
    taken, place = 0, replica.head
    while place >= 0:
        seat = seat_at(s.seats, place)
        if seat.is_decoding:
            held = slots_held(s, replica, seat)
            slots = seat.base + replica.counter + s.drafts
        else:
            held = seat.computed + s.drafts
            slots = held + seat.chunk
        taken += units_of(s, slots) - units_of(s, held)
        if taken > replica.free:
            taken -= units_of(s, slots) - units_of(s, held)
            break
        place = seat.next
    replica.free -= taken
    evict(s, replica, number)
    replica.free += taken


@once
def plan_chunks(s, replica, number, cap, budget):
    """Budget left after the chunks of the unfinished prompts, which are noted in their seats."""
    for at in range(number * s.seat_count, number * s.seat_count + replica.partials):
        seat = seat_at(s.seats, lists_at(s.lists, at).partial)
        seat.chunk = min(seat.target - seat.computed, cap, budget)
        budget -= seat.chunk
    return budget


@inner
def chunk_units(s, replica, number):
    """Units the planned chunks need."""
    total = 0
    for at in range(number * s.seat_count, number * s.seat_count + replica.partials):
        seat = seat_at(s.seats, lists_at(s.lists, at).partial)
        if seat.chunk > 0:
            total += units_of(s, seat.computed + s.drafts + seat.chunk) - seat.held
    return total


@once
def preempt(s, replica, number, need):
    """Send the last running requests back to the front of the queue until what is left of `need` units is free."""
    while need > replica.free:
        if replica.cached > 0:
            evict_before(s, replica, number)
        place = replica.tail
        request = seat_at(s.seats, place).request
        leave(s, replica, number, place)
        own = request_at(s.requests, request)
        own.preemptions += 1
        s.preempted += 1
        queue_first(s, replica, request, whole_at(s.prompts, request).v + own.made)
        need = step_units(s, replica, number) + chunk_units(s, replica, number)
    return need


@inner
def compute_chunk(s, replica, number, seat):
    """Count the chunk of a seat into the step."""
    if seat.chunk == 0:
        return
    before = seat.computed
    seat.computed = before + seat.chunk
    seat.held = units_of(s, seat.computed + s.drafts)
    replica.prefill += seat.chunk
    replica.prefill_pairs += seat.chunk * (before + 0.5 * (seat.chunk + 1))
    replica.prefill_context += seat.computed
    if seat.computed == seat.target:
        replica.sampled += 1
    if s.caching:
        keep_computed(s, replica, number, seat)


@once
def admit(s, replica, number, cap, budget):
    """Tokens of the first chunk of the first in the queue; 0 if it does not fit and stays there."""
    request = replica.wait_head
    own = request_at(s.requests, request)
    total = whole_at(s.prompts, request).v + own.made
    hit, ids, back = 0, 0, 0
    if s.caching:
        hit, ids, back = found(s, number, request, total)
    chunk = min(total - hit, cap, budget)
    units = units_of(s, hit + chunk + s.drafts)
    most = max(units, units_of(s, total)) if s.reserve_full else units
    shared = hit // s.hit_tokens * s.hit_units if ids > 0 else 0
    spare = s.watermark_units if replica.running > 0 else 0
    if most - shared + back > replica.free - spare:
        return 0
    unqueue_first(s, replica, total)
    place = take_seat(s, replica, number * s.seat_count)
    seat = seat_at(s.seats, place)
    seat.request = request
    seat.target = total
    seat.computed = hit
    seat.chunk = chunk
    seat.made = own.made
    seat.is_decoding = 0
    seat.may_pin = 0
    if s.caching:
        take_found(s, replica, number, seat, hit, ids)
    if np.isnan(own.scheduled):
        own.scheduled = replica.decided if s.lag > 0 else replica.clock
        own.cached = hit
    replica.free -= units - shared
    if replica.cached > replica.free:
        evict(s, replica, number)
    lists_at(s.lists, number * s.seat_count + replica.partials).partial = place
    replica.partials += 1
    compute_chunk(s, replica, number, seat)
    return chunk
