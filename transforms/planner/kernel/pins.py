"""KV that stays referenced through a tool wait, and copies of it in the host's memory.

`pins` has one record a request of the trace; a replica's pins stand in two lists, oldest first: those whose turn is not
back yet, and claimed ones, whose turn waits in the queue. A pin goes when its turn is admitted, is refused, gives up or
goes to another replica, and when `pin_s` is over before the turn is back. So that pins cannot bring a replica to a
halt, the oldest also goes, before claimed ones do, when running requests lack blocks (sooner than anybody is
preempted), and when nothing runs and the first in the queue does not fit.

With copies (OFFLOAD) a pin lasts until its copy is out; the turn joins the queue when what the replica has no longer is
back. Both ways queue on one link of each replica.
"""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.lru import (
    HELD,
    PINNED,
    SESSION,
    charge_shared,
    count_reference,
    dereference_ids,
    link_last,
    unlink_entry,
)
from transforms.planner.kernel.samples import sample
from transforms.planner.kernel.tables import (
    cache_at,
    cause_at,
    count_at,
    flag_at,
    pin_at,
    replica_at,
    request_at,
    whole_at,
)

HOLD, OFFLOAD = 1, 2
NONE, AWAITING, CLAIMED, LOADING, LOADED = 0, 1, 2, 3, 4


@inner
def owner_of(s, request):
    """Request whose KV waits for this one; −1 for none."""
    if s.pinning == 0:
        return -1
    owner = np.int64(cause_at(s.causes, request).parent)
    return owner if owner >= 0 and pin_at(s.pins, owner).child == request else -1


@inner
def is_pinned(pin):
    """Whether blocks are referenced by it."""
    return AWAITING <= pin.state <= CLAIMED


@inner
def is_awaited(s, number, request):
    """Whether what a request leaves on replica `number` can still be of use to the turn after it."""
    child = pin_at(s.pins, request).child
    own = request_at(s.requests, child)
    has_arrived = own.arrived == own.arrived  # not NaN
    return own.status == 0 and own.scheduled != own.scheduled and (not has_arrived or own.replica == number)


@inner
def pin_ids(s, replica, number, seat):
    """Take over the references a request has to prefix blocks, before it gives back what it holds."""
    first, units = count_at(s.offsets, seat.request).v, 0
    for at in range(first, first + seat.ids):
        if flag_at(s.held_ids, at).v == HELD:
            flag_at(s.held_ids, at).v = PINNED
            units += s.id_units
            place = number * s.entries + whole_at(s.ids, at).v
            count_reference(s, replica, place, 0)
            charge_shared(s, seat.request, place, 1)
    if units > 0:
        pin_at(s.pins, seat.request).ids = seat.ids
        _enlist(s, replica, number, seat.request, units)


@inner
def pin_session(s, replica, number, seat):
    """Reference what a request has just left evictable to its session."""
    session = whole_at(s.sessions, seat.request).v
    if session < 0:
        return
    start = number * s.entries
    entry = cache_at(s.cache, start + session)
    if entry.references != 0:
        return
    units = entry.tokens // s.hit_tokens * s.hit_units
    unlink_entry(s, replica, start, session)
    replica.cached -= units
    replica.free -= units
    entry.references = 1
    entry.next = seat.request
    pin_at(s.pins, seat.request).tokens = entry.tokens
    _enlist(s, replica, number, seat.request, units)


@inner
def _enlist(s, replica, number, request, units):
    pin = pin_at(s.pins, request)
    pin.replica = number
    pin.units = units
    pin.since = replica.clock
    pin.until = replica.clock + s.pin_s
    has_arrived = request_at(s.requests, pin.child).arrived == request_at(s.requests, pin.child).arrived
    if s.pinning == OFFLOAD and not has_arrived:
        replica.link = max(replica.link, replica.clock) + units * s.link_s
        pin.until = replica.link
        pin.copied = 1
    replica.pins += 1
    _link(s, replica, request, CLAIMED if has_arrived else AWAITING)


@inner
def _link(s, replica, request, state):
    pin = pin_at(s.pins, request)
    pin.state = state
    pin.next = -1
    if state == CLAIMED:
        pin.previous, replica.claim_tail = replica.claim_tail, request
    else:
        pin.previous, replica.pin_tail = replica.pin_tail, request
    if pin.previous >= 0:
        pin_at(s.pins, pin.previous).next = request
    elif state == CLAIMED:
        replica.claim_head = request
    else:
        replica.pin_head = request


@inner
def _unlink(s, replica, request):
    pin = pin_at(s.pins, request)
    if pin.previous >= 0:
        pin_at(s.pins, pin.previous).next = pin.next
    elif pin.state == CLAIMED:
        replica.claim_head = pin.next
    else:
        replica.pin_head = pin.next
    if pin.next >= 0:
        pin_at(s.pins, pin.next).previous = pin.previous
    elif pin.state == CLAIMED:
        replica.claim_tail = pin.previous
    else:
        replica.pin_tail = pin.previous


@inner
def release(s, replica, number, request):
    """Let what a request left be evictable from the replica's clock on."""
    pin, start = pin_at(s.pins, request), number * s.entries
    _unlink(s, replica, request)
    pin.state = NONE
    pin.held += pin.units * (replica.clock - pin.since)
    if replica.clock < pin.until:
        pin.copied = 0
    replica.pins -= 1
    if s.caching == SESSION:
        session = whole_at(s.sessions, request).v
        cache_at(s.cache, start + session).references = 0
        link_last(s, replica, start, session)
        replica.cached += pin.units
        replica.free += pin.units
        return
    dereference_ids(s, replica, start, request, pin.ids, PINNED)


@inner
def release_oldest(s, replica, number):
    """Release the oldest pin of those whose turn is not back, else of all."""
    release(s, replica, number, replica.pin_head if replica.pin_head >= 0 else replica.claim_head)


@once
def release_expired(s, replica, number):
    """Release the pins whose time is over at the clock."""
    while replica.pin_head >= 0 and pin_at(s.pins, replica.pin_head).until <= replica.clock:
        release(s, replica, number, replica.pin_head)


@inner
def rest(s, replica, number, at):
    """Let time pass until `at` in a replica that has nothing to do but pins."""
    if replica.pins == 0 or replica.running + replica.waiting > 0:
        return
    while replica.clock < at:
        head = replica.pin_head
        until = at
        if head >= 0:
            until = min(at, max(replica.clock, pin_at(s.pins, head).until))
        if s.has_series and until > replica.clock:
            sample(s, replica, number, 1, until - replica.clock, 0.0)
        replica.clock, replica.clock_low = until, 0.0
        if head >= 0 and pin_at(s.pins, head).until <= until:
            release(s, replica, number, head)


@inner
def abandon(s, request, at):
    """Let go of what was kept for a request that will not take it over."""
    owner = owner_of(s, request)
    if owner < 0:
        return
    number = np.int64(pin_at(s.pins, owner).replica)
    rest(s, replica_at(s.replicas, number), number, at)
    if is_pinned(pin_at(s.pins, owner)):
        release(s, replica_at(s.replicas, number), number, owner)
    pin_at(s.pins, owner).copied = 0


@inner
def claim(s, request, owner, number, at):
    """Keep for a request that has come to replica `number` what was pinned for it there."""
    pin, replica = pin_at(s.pins, owner), replica_at(s.replicas, number)
    if pin.state != AWAITING:
        return
    if pin.replica != number:
        abandon(s, request, at)
    elif at < pin.until:
        _unlink(s, replica, owner)
        _link(s, replica, owner, CLAIMED)


@inner
def common_ids(s, owner, request):
    """Prefix blocks of a request that are those its predecessor left."""
    first, other = count_at(s.offsets, request).v, count_at(s.offsets, owner).v
    most = min(pin_at(s.pins, owner).ids, count_at(s.offsets, request + 1).v - first)
    ids = 0
    while ids < most and whole_at(s.ids, first + ids).v == whole_at(s.ids, other + ids).v:
        ids += 1
    return ids


@inner
def copy_owner(s, request):
    """Request whose copy is back for this one's admission; −1 for none."""
    if s.pinning != OFFLOAD:
        return -1
    owner = owner_of(s, request)
    return owner if owner >= 0 and pin_at(s.pins, owner).state == LOADED else -1
