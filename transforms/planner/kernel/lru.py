"""Evictable entries of one replica's prefix cache as a linked list, least recently used first."""

from __future__ import annotations

from transforms.planner.kernel.compiled import inner
from transforms.planner.kernel.tables import cache_at, count_at, flag_at, real_at, share_at, whole_at

OFF, BLOCK_IDS, SESSION = 0, 1, 2
"""What prefix caching goes by."""
HELD, PINNED = 1, 2
"""Marks of `held_ids`: referenced by the running request, or by what it left pinned."""


@inner
def link_last(s, replica, start, name):
    """Put an entry at the end: used last."""
    cache_at(s.cache, start + name).previous = replica.lru_tail
    cache_at(s.cache, start + name).next = -1
    if replica.lru_tail >= 0:
        cache_at(s.cache, start + replica.lru_tail).next = name
    else:
        replica.lru_head = name
    replica.lru_tail = name


@inner
def unlink_entry(s, replica, start, name):
    """Take an entry out."""
    entry = cache_at(s.cache, start + name)
    if entry.previous >= 0:
        cache_at(s.cache, start + entry.previous).next = entry.next
    else:
        replica.lru_head = entry.next
    if entry.next >= 0:
        cache_at(s.cache, start + entry.next).previous = entry.previous
    else:
        replica.lru_tail = entry.previous


@inner
def count_reference(s, replica, at, change):
    """Let one more (`change` 1) or one fewer (−1) refer to entry `at` of the cache, from the replica's clock on."""
    entry, share = cache_at(s.cache, at), share_at(s.shares, at)
    if entry.references > 1:
        share.saved += (replica.clock - share.since) * (1.0 - 1.0 / entry.references)
    share.since = replica.clock
    entry.references = max(entry.references, 0) + change


@inner
def charge_shared(s, request, at, sign):
    """Add to what sharing saves a request what it has saved each holder of entry `at` so far; −1: from now on."""
    real_at(s.saved, request).v += sign * (s.id_units * share_at(s.shares, at).saved)


@inner
def dereference_ids(s, replica, start, request, ids, mark):
    """Take back the references that `mark` says a request has among its first prefix blocks, the last block first."""
    first = count_at(s.offsets, request).v
    for at in range(first + ids - 1, first - 1, -1):
        if flag_at(s.held_ids, at).v == mark:
            flag_at(s.held_ids, at).v = 0
            place = start + whole_at(s.ids, at).v
            count_reference(s, replica, place, -1)
            if mark == HELD:
                charge_shared(s, request, place, 1)
            if cache_at(s.cache, place).references == 0:
                link_last(s, replica, start, whole_at(s.ids, at).v)
                replica.cached += s.id_units
                replica.free += s.id_units
