"""Prefix caching: blocks that outlive their request, referenced and evictable ones apart, least recently used go first.

By block ids: `cache` has one entry an id and replica, shared by all requests that hold it (`held_ids` marks which of
its ids a running request holds). By session: one entry a session and replica, with the tokens its last request left;
the next request of the session takes them over. `free` counts evictable units as free; `cached` are those.
"""

from __future__ import annotations

from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.tables import cache_at, count_at, flag_at, request_at, whole_at

OFF, BLOCK_IDS, SESSION = 0, 1, 2


@inner
def found(s, number, request, total):
    """(tokens, ids, units to bring back) that replica `number` has cached of the first `total` tokens of a request.

    At most the whole blocks before the last token, which is always computed.
    """
    most = (total - 1) // s.hit_tokens * s.hit_tokens
    start = number * s.entries
    if s.caching == SESSION:
        session = whole_at(s.sessions, request).v
        if session < 0 or cache_at(s.cache, start + session).references < 0:
            return 0, 0, 0
        tokens = cache_at(s.cache, start + session).tokens
        if s.has_shared and request_at(s.requests, request).preemptions == 0:
            tokens = min(tokens, whole_at(s.shared, request).v // s.hit_tokens * s.hit_tokens)
        return min(tokens, most), 0, 0
    first, last = count_at(s.offsets, request).v, count_at(s.offsets, request + 1).v
    ids, back = 0, 0
    while first + ids < last and ids * s.id_tokens < most:
        references = cache_at(s.cache, start + whole_at(s.ids, first + ids).v).references
        if references < 0:
            break
        back += s.id_units if references == 0 else 0
        ids += 1
    return min(ids * s.id_tokens, most), ids, back


@once
def take_found(s, replica, number, seat, tokens, ids):
    """Reference what `found` named; what is evictable stops to be, and to be free."""
    start = number * s.entries
    seat.ids = ids
    seat.shared = 0
    if s.caching == SESSION:
        session = whole_at(s.sessions, seat.request).v
        if session >= 0 and cache_at(s.cache, start + session).references == 0:
            entry = cache_at(s.cache, start + session)
            _unlink(s, replica, start, session)
            replica.cached -= entry.tokens // s.hit_tokens * s.hit_units
            entry.references = -1
        return
    first = count_at(s.offsets, seat.request).v
    for at in range(first, first + ids):
        entry = cache_at(s.cache, start + whole_at(s.ids, at).v)
        if entry.references == 0:
            _unlink(s, replica, start, whole_at(s.ids, at).v)
            replica.cached -= s.id_units
            replica.free -= s.id_units
        entry.references += 1
        flag_at(s.held_ids, at).v = 1
    seat.shared = tokens // s.hit_tokens * s.hit_units


@inner
def keep_computed(s, number, seat):
    """Make the whole blocks that the chunks of a request have filled available to others."""
    if s.caching != BLOCK_IDS:
        return
    first, last = count_at(s.offsets, seat.request).v, count_at(s.offsets, seat.request + 1).v
    while first + seat.ids < last and (seat.ids + 1) * s.id_tokens <= seat.computed:
        at = first + seat.ids
        entry = cache_at(s.cache, number * s.entries + whole_at(s.ids, at).v)
        if entry.references < 0:
            entry.references = 1
            flag_at(s.held_ids, at).v = 1
            seat.shared += s.id_units
        seat.ids += 1


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
    first = count_at(s.offsets, seat.request).v
    for at in range(first + seat.ids - 1, first - 1, -1):
        if flag_at(s.held_ids, at).v:
            flag_at(s.held_ids, at).v = 0
            entry = cache_at(s.cache, start + whole_at(s.ids, at).v)
            entry.references -= 1
            if entry.references == 0:
                _link_last(s, replica, start, whole_at(s.ids, at).v)
                replica.cached += s.id_units
                replica.free += s.id_units


@inner
def _leave_session(s, replica, start, session, tokens):
    """Leave a session's whole blocks evictable in place of what it left before."""
    entry = cache_at(s.cache, start + session)
    if entry.references == 0:
        _unlink(s, replica, start, session)
        replica.cached -= entry.tokens // s.hit_tokens * s.hit_units
        entry.references = -1
    entry.tokens = tokens // s.hit_tokens * s.hit_tokens
    if entry.tokens > 0:
        entry.references = 0
        _link_last(s, replica, start, session)
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
        _unlink(s, replica, start, first)
        entry.references = -1


@inner
def _link_last(s, replica, start, name):
    cache_at(s.cache, start + name).previous = replica.lru_tail
    cache_at(s.cache, start + name).next = -1
    if replica.lru_tail >= 0:
        cache_at(s.cache, start + replica.lru_tail).next = name
    else:
        replica.lru_head = name
    replica.lru_tail = name


@inner
def _unlink(s, replica, start, name):
    entry = cache_at(s.cache, start + name)
    if entry.previous >= 0:
        cache_at(s.cache, start + entry.previous).next = entry.next
    else:
        replica.lru_head = entry.next
    if entry.next >= 0:
        cache_at(s.cache, start + entry.next).previous = entry.previous
    else:
        replica.lru_tail = entry.previous
