"""Evictable entries of one replica's prefix cache as a linked list, least recently used first."""

from __future__ import annotations

from transforms.planner.kernel.compiled import inner
from transforms.planner.kernel.tables import cache_at, count_at, flag_at, whole_at

OFF, BLOCK_IDS, SESSION = 0, 1, 2
"""What prefix caching goes by."""


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
def dereference_ids(s, replica, start, request, ids, mark):
    """Take back the references that `mark` says a request has among its first prefix blocks, the last block first."""
    first = count_at(s.offsets, request).v
    for at in range(first + ids - 1, first - 1, -1):
        if flag_at(s.held_ids, at).v == mark:
            flag_at(s.held_ids, at).v = 0
            entry = cache_at(s.cache, start + whole_at(s.ids, at).v)
            entry.references -= 1
            if entry.references == 0:
                link_last(s, replica, start, whole_at(s.ids, at).v)
                replica.cached += s.id_units
                replica.free += s.id_units
