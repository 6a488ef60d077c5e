"""Prefix caching: blocks that outlive their request, referenced and evictable ones apart, least recently used go first.

By block ids: `cache` has one entry an id and replica, shared by all requests that hold it (`held_ids` marks which of
its ids a running request holds; `saved` is what counting each of them 1/n to n holders takes off it). By session: one
entry a session and replica, with the tokens its last request left; the next request of the session takes them over.
`free` counts evictable units as free; `cached` are those.
"""

from __future__ import annotations

import numpy as np

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.lru import (
    BLOCK_IDS,
    HELD,
    OFF,
    SESSION,
    charge_shared,
    count_reference,
    dereference_ids,
    link_last,
    unlink_entry,
)
from transforms.planner.kernel.pins import (
    NONE,
    common_ids,
    copy_owner,
    is_awaited,
    is_pinned,
    owner_of,
    pin_ids,
    pin_session,
    release,
)
from transforms.planner.kernel.tables import cache_at, count_at, flag_at, pin_at, request_at, whole_at


@inner
def found(s, number, request, total):
    """(tokens, ids, units to take from the free ones) that replica `number` has of the first `total` of a request.

    At most the whole blocks before the last token, which is always computed. What the session has pinned is no longer
    lacking: it counts below zero. Blocks of a copy that is back from the host are found, and lack.
    """
    most = (total - 1) // s.hit_tokens * s.hit_tokens
    start = number * s.entries
    if s.caching == SESSION:
        tokens, back = _found_of_session(s, start, request)
        return min(tokens, most), 0, back
    first, last = count_at(s.offsets, request).v, count_at(s.offsets, request + 1).v
    owner = copy_owner(s, request)
    copied = common_ids(s, owner, request) if owner >= 0 else 0
    ids, back = 0, 0
    while first + ids < last and ids * s.id_tokens < most:
        references = cache_at(s.cache, start + whole_at(s.ids, first + ids).v).references
        if references < 0 and ids >= copied:
            break
        back += s.id_units if references <= 0 else 0
        ids += 1
    return min(ids * s.id_tokens, most), ids, back


@inner
def _found_of_session(s, start, request):
    """(tokens, units lacking) of what a session left: pinned units lack no longer."""
    session, owner = whole_at(s.sessions, request).v, copy_owner(s, request)
    tokens, back = 0, 0
    if session >= 0 and cache_at(s.cache, start + session).references >= 0:
        tokens = cache_at(s.cache, start + session).tokens
        if cache_at(s.cache, start + session).references > 0:
            back = -(tokens // s.hit_tokens * s.hit_units)
    if owner >= 0:
        tokens = max(tokens, pin_at(s.pins, owner).tokens)
    if s.has_shared and request_at(s.requests, request).preemptions == 0:
        tokens = min(tokens, whole_at(s.shared, request).v // s.hit_tokens * s.hit_tokens)
    return tokens, back


@once
def take_found(s, replica, number, seat, tokens, ids):
    """Reference what `found` named; what is evictable or back from the host stops to be, and to be free."""
    start, owner = number * s.entries, owner_of(s, seat.request)
    seat.ids = ids
    seat.shared = 0
    if owner >= 0 and not is_pinned(pin_at(s.pins, owner)):
        pin_at(s.pins, owner).state = NONE
    if s.caching == SESSION:
        session = whole_at(s.sessions, seat.request).v
        if s.pinning and session >= 0 and cache_at(s.cache, start + session).references > 0:
            release(s, replica, number, np.int64(cache_at(s.cache, start + session).next))
        if session >= 0 and cache_at(s.cache, start + session).references == 0:
            entry = cache_at(s.cache, start + session)
            unlink_entry(s, replica, start, session)
            replica.cached -= entry.tokens // s.hit_tokens * s.hit_units
            entry.references = -1
        return
    first = count_at(s.offsets, seat.request).v
    for at in range(first, first + ids):
        place = start + whole_at(s.ids, at).v
        references = cache_at(s.cache, place).references
        if references == 0:
            unlink_entry(s, replica, start, whole_at(s.ids, at).v)
            replica.cached -= s.id_units
        if references <= 0:
            replica.free -= s.id_units
        count_reference(s, replica, place, 1)
        charge_shared(s, seat.request, place, -1)
        flag_at(s.held_ids, at).v = HELD
    seat.shared = tokens // s.hit_tokens * s.hit_units
    if owner >= 0 and is_pinned(pin_at(s.pins, owner)):
        release(s, replica, number, owner)


@inner
def keep_computed(s, replica, number, seat):
    """Make the whole blocks that the chunks of a request have filled available to others."""
    if s.caching != BLOCK_IDS:
        return
    first, last = count_at(s.offsets, seat.request).v, count_at(s.offsets, seat.request + 1).v
    while first + seat.ids < last and (seat.ids + 1) * s.id_tokens <= seat.computed:
        at = first + seat.ids
        place = number * s.entries + whole_at(s.ids, at).v
        if cache_at(s.cache, place).references < 0:
            count_reference(s, replica, place, 1)
            charge_shared(s, seat.request, place, -1)
            flag_at(s.held_ids, at).v = HELD
            seat.shared += s.id_units
        seat.ids += 1


@inner
def leave_or_pin(s, replica, number, seat):
    """Free what a request holds, but what the turn after its tools will want and the policy keeps for it."""
    is_pinning = s.pinning > 0 and seat.may_pin and is_awaited(s, number, seat.request)
    if is_pinning and s.caching == BLOCK_IDS:
        pin_ids(s, replica, number, seat)
    release_units(s, replica, number, seat)
    if is_pinning and s.caching == SESSION:
        pin_session(s, replica, number, seat)


@inner
def release_units(s, replica, number, seat):
    """Free what a request holds: its own blocks at once, cached ones as soon as nobody else refers to them."""
    if s.caching == OFF:
        replica.free += seat.held
        return
    start = number * s.entries
    if s.caching == SESSION:
        replica.free += seat.held
        session = whole_at(s.sessions, seat.request).v
        if session >= 0:
            _leave_session(s, replica, start, session, seat.tokens)
        return
    replica.free += seat.held - seat.shared
    dereference_ids(s, replica, start, seat.request, seat.ids, HELD)


@inner
def _leave_session(s, replica, start, session, tokens):
    """Leave a session's whole blocks evictable in place of what it left before."""
    entry = cache_at(s.cache, start + session)
    if s.pinning and entry.references > 0:
        release(s, replica, start // s.entries, np.int64(entry.next))
    if entry.references == 0:
        unlink_entry(s, replica, start, session)
        replica.cached -= entry.tokens // s.hit_tokens * s.hit_units
        entry.references = -1
    entry.tokens = tokens // s.hit_tokens * s.hit_tokens
    if entry.tokens > 0:
        entry.references = 0
        link_last(s, replica, start, session)
        replica.cached += entry.tokens // s.hit_tokens * s.hit_units


@inner
def evict(s, replica, number):
    """Drop evictable blocks, least recently used first, until what is free covers those that stay."""
    start = number * s.entries
    while replica.cached > replica.free:
        first = replica.lru_head
        entry = cache_at(s.cache, start + first)
        if s.caching == SESSION:
            blocks = entry.tokens // s.hit_tokens
            gone = min(blocks, -((replica.free - replica.cached) // s.hit_units))
            replica.cached -= gone * s.hit_units
            entry.tokens -= gone * s.hit_tokens
            if gone < blocks:
                continue
        else:
            replica.cached -= s.id_units
        unlink_entry(s, replica, start, first)
        entry.references = -1
