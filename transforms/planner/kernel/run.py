"""The replay itself: arrivals in order of time, each to its replica, whose steps run until the next one."""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import entry, inner, once
from transforms.planner.kernel.heap import pop_event, push_event
from transforms.planner.kernel.outcome import follow, refuse
from transforms.planner.kernel.pins import LOADED, LOADING, NONE, OFFLOAD, claim, owner_of, rest
from transforms.planner.kernel.pool import units_of
from transforms.planner.kernel.prefix import found
from transforms.planner.kernel.router import route
from transforms.planner.kernel.samples import sample_arrival
from transforms.planner.kernel.seats import output_limit, queue_last
from transforms.planner.kernel.step import advance
from transforms.planner.kernel.tables import cause_at, event_at, pin_at, real_at, replica_at, request_at, whole_at

DONE, PAUSED = 0, 1
PROMPT_TOO_LONG, REQUESTED_TOO_LONG, QUEUE_FULL_REQUESTS, QUEUE_FULL_TOKENS, LARGER_THAN_POOL = 3, 4, 5, 6, 7
IGNORE, REJECT = 0, 1


@entry
def run(world):
    """DONE once every request has ended, PAUSED where the horizon was reached first."""
    s = world[0]
    if s.has_feedback and not s.is_begun:
        for request in range(s.rows):
            blank(s, request)
    s.is_begun = 1
    while True:
        from_event, at = next_arrival(s)
        limit = min(at, s.horizon_s)
        if s.has_feedback and not settle(s, limit):
            continue
        if at >= s.horizon_s or at == np.inf:
            for number in range(s.replica_count):
                advance(s, number, s.horizon_s)
            if at < np.inf or is_busy(s) or s.event_count > 0:
                return PAUSED
            return DONE
        if from_event:
            request = pop_event(s)
        else:
            request = s.cursor
            s.cursor += 1
            if not s.has_feedback:
                blank(s, request)
        arrive(s, request, at)


@inner
def blank(s, request):
    """Make a request's record that of one that has not arrived: as it does, or all at first where others look at it."""
    own = request_at(s.requests, request)
    own.arrived = own.scheduled = own.first_token = own.end = np.nan
    own.kv_tokens = own.kv_units = 0.0
    own.made = own.next = own.preemptions = own.cached = own.status = 0
    own.replica = -1


@once
def is_busy(s):
    """Whether any replica has a request."""
    for number in range(s.replica_count):
        if replica_at(s.replicas, number).outstanding > 0:
            return True
    return False


@once
def next_arrival(s):
    """(whether it was caused by another request, when) of the next arrival; infinitely late if there is none."""
    rows = s.rows
    if s.closed_loop > 0:
        return True, event_at(s.events, 0).at if s.event_count > 0 else np.inf
    if s.has_causes:
        while s.cursor < rows and cause_at(s.causes, s.cursor).parent >= 0:
            s.cursor += 1
    at = real_at(s.arrived, s.cursor).v if s.cursor < rows else np.inf
    if s.event_count > 0:
        caused = event_at(s.events, 0).at
        if caused < at or (caused == at and event_at(s.events, 0).request < s.cursor):
            return True, caused
    return False, at


@once
def settle(s, limit):
    """Whether all replicas have run up to `limit` without causing an earlier arrival; the last in time goes first."""
    while True:
        first, earliest, second = -1, np.inf, np.inf
        for number in range(s.replica_count):
            replica = replica_at(s.replicas, number)
            if replica.running + replica.waiting > 0:
                if replica.clock < earliest:
                    first, second, earliest = number, earliest, replica.clock
                elif replica.clock < second:
                    second = replica.clock
        if first < 0 or earliest >= limit:
            return True
        advance(s, first, min(limit, np.nextafter(second, np.inf)))
        if s.event_count > 0 and event_at(s.events, 0).at < limit:
            return False


@once
def arrive(s, request, at):
    """Let a request come in at time `at`: into a replica's queue, or refused."""
    own, owner = request_at(s.requests, request), owner_of(s, request)
    own.arrived = at
    prompt = np.int64(whole_at(s.prompts, request).v)
    if owner >= 0 and pin_at(s.pins, owner).state == LOADING:
        pin_at(s.pins, owner).state = LOADED
        number, status = np.int64(pin_at(s.pins, owner).replica), 0
    else:
        status = refusal(s, request, prompt)
        if status > 0:
            refuse(s, request, status, at)
            return
        number = route(s, request, at)
        if owner >= 0 and fetch(s, request, owner, number, at):
            return
    replica = replica_at(s.replicas, number)
    rest(s, replica, number, at)
    if replica.waiting + 1 > s.max_queued:
        status = QUEUE_FULL_REQUESTS
    elif replica.waiting_tokens + prompt > s.max_queued_tokens:
        status = QUEUE_FULL_TOKENS
    own.replica = number
    if status > 0:
        refuse(s, request, status, at)
        return
    if replica.running + replica.waiting == 0 and replica.clock < at:
        replica.clock, replica.clock_low = at, 0.0
    queue_last(s, replica, request, prompt)
    replica.outstanding += 1
    if s.has_series:
        sample_arrival(s, replica, at)
    if s.has_causes:
        follow(s, request, at, True)


@once
def fetch(s, request, owner, number, at):
    """Whether the KV of a session has to come back to replica `number` first; its turn joins the queue after that."""
    pin, replica = pin_at(s.pins, owner), replica_at(s.replicas, number)
    rest(s, replica, number, at)
    claim(s, request, owner, number, at)
    if s.pinning != OFFLOAD or pin.state != NONE or pin.copied == 0 or pin.replica != number:
        return False
    prompt = np.int64(whole_at(s.prompts, request).v)
    here, _, _ = found(s, number, request, prompt)
    pin.state = LOADED
    whole, _, _ = found(s, number, request, prompt)
    if whole <= here:
        return False
    replica.link = max(replica.link, at) + (whole - here) // s.hit_tokens * s.hit_units * s.link_s
    pin.load_s = replica.link - at
    pin.state = LOADING
    push_event(s, replica.link, request)
    return True


@once
def refusal(s, request, prompt):
    """Why no replica could ever serve this request, as a status; 0 if one could."""
    if prompt >= s.max_model_len:
        return PROMPT_TOO_LONG
    if s.requested_rule == REJECT and s.has_requested and prompt + whole_at(s.requested, request).v > s.max_model_len:
        return REQUESTED_TOO_LONG
    most = prompt + output_limit(s, request) - 1 + s.drafts
    return LARGER_THAN_POOL if units_of(s, most) > s.units else 0
