"""Ends of requests: completed, timed out or refused, and what follows from them (later turns, the closed loop)."""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.heap import push_event
from transforms.planner.kernel.pins import abandon
from transforms.planner.kernel.seats import (
    COMPLETED,
    TIMED_OUT,
    begin_lag,
    leave,
    output_limit,
    stop_decoding,
    unlink,
    unqueue_first,
    vacate,
)
from transforms.planner.kernel.tables import cause_at, pin_at, request_at, seat_at, whole_at

NOT_SENT = 8


@inner
def follow(s, request, at, is_start):
    """Let the requests that this one's start (else its end) at `at` causes arrive after their delays."""
    child = np.int64(cause_at(s.causes, request).first_child)
    while child >= 0:
        cause = cause_at(s.causes, child)
        if cause.from_start == is_start:
            push_event(s, at + cause.delay_s, child)
        child = cause.sibling


@inner
def forget(s, request, from_starts):
    """Mark the requests that this one would have caused, and theirs, as never sent."""
    stack = np.int64(-1)  # linked through `next`, which requests that have not arrived do not use
    current, both = request, from_starts
    while True:
        child = np.int64(cause_at(s.causes, current).first_child)
        while child >= 0:
            if both or not cause_at(s.causes, child).from_start:
                request_at(s.requests, child).status = NOT_SENT
                request_at(s.requests, child).next = stack
                stack = child
            child = cause_at(s.causes, child).sibling
        if stack < 0:
            return
        current, both = stack, True
        stack = request_at(s.requests, current).next


@inner
def ended(s, request, status, at):
    """Write how and when a request that had arrived ended, and let follow what its end causes."""
    own = request_at(s.requests, request)
    own.status = status
    own.end = at
    s.end_s = max(s.end_s, at)
    if s.pinning and status != COMPLETED:
        abandon(s, request, at)
    if s.closed_loop > 0:
        if s.cursor < s.rows:
            push_event(s, at, s.cursor)
            s.cursor += 1
    elif s.has_causes:
        if status == COMPLETED or not s.failure_ends:
            follow(s, request, at, False)
        else:
            forget(s, request, False)


@inner
def refuse(s, request, status, at):
    """Reject an arrival. What its start would cause is not sent either where failures end sessions."""
    if s.has_causes:
        if s.failure_ends:
            forget(s, request, True)
        else:
            follow(s, request, at, True)
    ended(s, request, status, at)


@inner
def complete(s, replica, number, place):
    """End a request whose last token has come at the clock; the client may have left meanwhile."""
    seat = seat_at(s.seats, place)
    request = seat.request
    if seat.is_decoding:
        stop_decoding(s, replica, number, place)
    own = request_at(s.requests, request)
    own.made = output_limit(s, request)
    status = COMPLETED if replica.clock <= own.arrived + s.timeout_s else TIMED_OUT
    if s.pinning:
        seat.may_pin = pin_at(s.pins, request).child >= 0 and (status == COMPLETED or not s.failure_ends)
    unlink(s, replica, seat)
    if s.lag > 0:
        begin_lag(s, replica, number, place)
    else:
        vacate(s, replica, number, place)
    replica.outstanding -= 1
    replica.left_now += 1
    ended(s, request, status, replica.clock)


@once
def expire(s, replica, number):
    """Drop requests whose clients have left by now: the longest here stand first, running before waiting."""
    now = replica.clock
    while replica.head >= 0:
        request = seat_at(s.seats, replica.head).request
        if now < request_at(s.requests, request).arrived + s.timeout_s:
            return
        leave(s, replica, number, replica.head)
        replica.outstanding -= 1
        ended(s, request, np.int64(TIMED_OUT), now)
    while replica.waiting > 0:
        request = replica.wait_head
        if now < request_at(s.requests, request).arrived + s.timeout_s:
            return
        unqueue_first(s, replica, whole_at(s.prompts, request).v + request_at(s.requests, request).made)
        replica.outstanding -= 1
        ended(s, request, np.int64(TIMED_OUT), now)
