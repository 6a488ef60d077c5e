"""Binary heaps in slices of tables: smallest key first, any item removable from where it stands."""

from __future__ import annotations

from transforms.planner.kernel.compiled import inner
from transforms.planner.kernel.tables import event_at, heap_at


@inner
def push(table, start, size, key, item):
    """Size of the heap with a further item; items are numbers unique in the whole table."""
    sift_up(table, start, size, key, item)
    return size + 1


@inner
def removed(table, start, size, item):
    """Size of the heap without `item`."""
    at = heap_at(table, item).place
    size -= 1
    if at < size:
        last = heap_at(table, start + size)
        key, item = last.key, last.item
        if at > 0 and heap_at(table, start + ((at - 1) >> 1)).key > key:
            sift_up(table, start, at, key, item)
        else:
            sift_down(table, start, size, at, key, item)
    return size


@inner
def sift_up(table, start, at, key, item):
    """Put (key, item) at `at` or above, moving larger ones down."""
    while at > 0:
        above = (at - 1) >> 1
        other = heap_at(table, start + above)
        if other.key <= key:
            break
        _put(table, start, at, other.key, other.item)
        at = above
    _put(table, start, at, key, item)


@inner
def sift_down(table, start, size, at, key, item):
    """Put (key, item) at `at` or below, moving smaller ones up."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap_at(table, start + child + 1).key < heap_at(table, start + child).key:
            child += 1
        other = heap_at(table, start + child)
        if other.key >= key:
            break
        _put(table, start, at, other.key, other.item)
        at = child
    _put(table, start, at, key, item)


@inner
def _put(table, start, at, key, item):
    entry = heap_at(table, start + at)
    entry.key = key
    entry.item = item
    heap_at(table, item).place = at


@inner
def push_event(s, at, request):
    """Add an arrival to the heap of pending ones, which is ordered by (time, request)."""
    place = s.event_count
    s.event_count += 1
    while place > 0:
        other = event_at(s.events, (place - 1) >> 1)
        if not _is_before(at, request, other):
            break
        _move(s, place, other.at, other.request)
        place = (place - 1) >> 1
    _move(s, place, at, request)


@inner
def pop_event(s):
    """Request of the earliest pending arrival, taken out."""
    popped = event_at(s.events, 0).request
    s.event_count -= 1
    size = s.event_count
    last = event_at(s.events, size)
    at, request = last.at, last.request
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        other = event_at(s.events, child)
        if child + 1 < size and not _is_before(other.at, other.request, event_at(s.events, child + 1)):
            child += 1
            other = event_at(s.events, child)
        if _is_before(at, request, other):
            break
        _move(s, place, other.at, other.request)
        place = child
    _move(s, place, at, request)
    return popped


@inner
def _is_before(at, request, other):
    return at < other.at or (at == other.at and request < other.request)


@inner
def _move(s, place, at, request):
    event = event_at(s.events, place)
    event.at = at
    event.request = request
