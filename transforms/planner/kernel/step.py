"""Steps in time: one step, or as many as change nothing but the lengths, computed at once; then who ended."""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.clock import series_sum, steps_before, steps_until_switch, terms
from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.outcome import complete, expire
from transforms.planner.kernel.pins import release_expired
from transforms.planner.kernel.pool import further_units, note_crossings, steps_that_fit
from transforms.planner.kernel.prefix import evict
from transforms.planner.kernel.samples import sample
from transforms.planner.kernel.schedule import is_too_early, schedule
from transforms.planner.kernel.seats import KEY_SHIFT, compensate, end_lag, output_limit, start_decoding
from transforms.planner.kernel.tables import event_at, heap_at, lists_at, pin_at, replica_at, request_at, seat_at


@inner
def advance(s, number, until):
    """Run the steps of one replica that begin before `until`, or before what their ends cause."""
    replica = replica_at(s.replicas, number)
    while replica.clock < until and replica.running + replica.waiting > 0:
        if replica.lagging > 0:
            end_lag(s, replica, number, replica.lag_old)
        if s.timeout_s < np.inf:
            expire(s, replica, number)
        if replica.pin_head >= 0:
            release_expired(s, replica, number)
        if replica.is_busy == 0:
            replica.decided = replica.clock
        schedule(s, replica, number)
        has_work = replica.decoding + replica.partials > 0
        if has_work:
            replica.left_now = 0
            execute(s, replica, number, until)
            replica.is_busy = 1
            finish(s, replica, number)
        is_idle = replica.decoding + replica.partials == 0 and (replica.waiting == 0 or not has_work)
        if is_idle:
            replica.is_busy = 0
            if replica.lagging > 0:
                end_lag(s, replica, number, replica.lagging)
        if s.event_count > 0:
            until = min(until, event_at(s.events, 0).at)


@once
def execute(s, replica, number, until):
    """Let the scheduled batch take its step, and the ones after it that are sure to be the same batch."""
    drafts = s.drafts
    compute, compute_slope, memory, memory_slope, rest = terms(
        s,
        replica.decoding,
        replica.prefill,
        replica.sampled,
        replica.prefill_pairs,
        replica.prefill_context,
        drafts,
    )
    lead = (compute + compute_slope * replica.context) - (memory + memory_slope * replica.context)
    base, growth = (compute, compute_slope) if lead >= 0.0 else (memory, memory_slope)
    first = base + growth * replica.context + rest
    if replica.prefill > 0:
        first += s.mixed_context_s * replica.context
    slope, steps = growth * replica.decoding, 1
    if replica.partials + replica.lagging + replica.has_preempted + drafts == 0 and not is_too_early(s, replica):
        closing = (memory_slope - compute_slope) * replica.decoding
        steps = jump(s, replica, number, until, first, slope)
        steps = steps_until_switch(abs(lead), closing if lead >= 0.0 else -closing, steps)
    seconds = series_sum(steps, first, slope)
    replica.decided = replica.clock
    if steps > 1:
        replica.decided += series_sum(steps - 1, first, slope) + replica.clock_low
    if s.has_series:
        sample(s, replica, number, steps, first, slope)
    for at in range(number * s.seat_count, number * s.seat_count + replica.partials):
        seat = seat_at(s.seats, lists_at(s.lists, at).partial)
        request = request_at(s.requests, seat.request)
        request.kv_tokens += seat.computed * seconds
        request.kv_units += seat.held * seconds
    move(s, replica, number, steps, first, slope, seconds)
    s.steps += steps
    s.jumps += 1


@once
def jump(s, replica, number, until, first, slope):
    """Steps (≥ 1) in which no request ends, nobody arrives or leaves, and no block is lacking."""
    if replica.clock + (first + replica.clock_low) >= until:
        return 1
    steps = (heap_at(s.end_heap, number * s.seat_count).key >> KEY_SHIFT) - replica.counter
    if replica.caps > 0:
        steps = min(steps, heap_at(s.cap_heap, number * s.seat_count * s.kind_count).key - replica.counter)
    limit = until
    if s.timeout_s < np.inf:
        limit = min(limit, request_at(s.requests, seat_at(s.seats, replica.head).request).arrived + s.timeout_s)
    if replica.pin_head >= 0:
        limit = min(limit, pin_at(s.pins, replica.pin_head).until)
    if steps > 1:
        steps = steps_before(replica.clock, replica.clock_low, limit, first, slope, steps)
    if steps > 1:
        # whoever waits may fit once the cached prefix it would have taken is evicted: then it must be asked again
        room = replica.free - (replica.cached if replica.waiting > 0 else 0)
        steps = steps_that_fit(s, replica, number, steps, room)
    return steps


@once
def move(s, replica, number, steps, first, slope, seconds):
    """Move the clock, the sums over time and all lengths by `steps` steps."""
    note_crossings(s, replica, number, steps, first, slope)
    if steps > 1:
        replica.free -= further_units(s, replica, number, steps - 1)
    replica.peak = max(replica.peak, s.units - replica.free)
    if replica.cached > replica.free:
        evict(s, replica, number)
    ones = 0.5 * steps * (steps - 1)
    compensate(replica, seconds, first * ones + slope * (ones * (2 * steps - 1) / 3.0))
    gained = steps
    if s.drafts > 0:
        replica.fraction += s.drafts * s.acceptance
        extra = int(replica.fraction)
        replica.fraction -= extra
        gained += extra
    replica.advanced = gained if s.drafts > 0 else 1
    replica.counter += gained
    replica.context += gained * replica.decoding


@once
def finish(s, replica, number):
    """After a step: prompts that are complete have their first token, requests that made their last one end."""
    start = number * s.seat_count
    count, kept = replica.partials, 0
    replica.partials = 0
    for at in range(start, start + count):
        place = lists_at(s.lists, at).partial
        seat = seat_at(s.seats, place)
        if seat.computed < seat.target:
            lists_at(s.lists, start + kept).partial = place
            kept += 1
            continue
        request = request_at(s.requests, seat.request)
        seat.made += 1
        if np.isnan(request.first_token):
            request.first_token = replica.clock
        if seat.made >= output_limit(s, seat.request):
            seat.tokens = seat.computed
            complete(s, replica, number, place)
        else:
            start_decoding(s, replica, number, place)
    replica.partials = kept
    while replica.ends > 0 and (heap_at(s.end_heap, start).key >> KEY_SHIFT) <= replica.counter:
        complete(s, replica, number, heap_at(s.end_heap, start).item)
