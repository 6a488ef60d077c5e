"""Binary heaps in slices of tables, smallest key first."""

from __future__ import annotations

from transforms.planner.kernel.compiled import inner
from transforms.planner.kernel.tables import event_at, heap_at


@inner
def push(table, start, size, key, item):
    """Size of the heap with a further item."""
    sift_up(table, start, size, key, item)
    return size + 1


@inner
def removed(table, start, size, item):
    """Size of the heap without `item`: of the first at once, of another after a look through the heap."""
    at = 0
    while heap_at(table, start + at).item != item:
        at += 1
    size -= 1
    while True:  # the smaller child moves up, down to a leaf: without a branch that nothing predicts
        child = 2 * at + 1
        if child >= size:
            break
        child += heap_at(table, start + child + 1).key < heap_at(table, start + child).key
        _move(table, start + child, start + at)
        at = child
    last = heap_at(table, start + size)
    sift_up(table, start, at, last.key, last.item)
    return size


@inner
def sift_up(table, start, at, key, item):
    """Put (key, item) at `at` or above, moving larger ones down."""
    while at > 0:
        above = (at - 1) >> 1
        if heap_at(table, start + above).key <= key:
            break
        _move(table, start + above, start + at)
        at = above
    entry = heap_at(table, start + at)
    entry.key = key
    entry.item = item


@inner
def _move(table, origin, to):
    heap_at(table, to).key, heap_at(table, to).item = heap_at(table, origin).key, heap_at(table, origin).item


@inner
def push_event(s, at, request):
    """Add an arrival to the heap of pending ones, which is ordered by (time, request)."""
    place = s.event_count
    s.event_count += 1
    while place > 0:
        other = event_at(s.events, (place - 1) >> 1)
        if not _is_before(at, request, other):
            break
        _place(s, place, other.at, other.request)
        place = (place - 1) >> 1
    _place(s, place, at, request)


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
        _place(s, place, other.at, other.request)
        place = child
    _place(s, place, at, request)
    return popped


@inner
def _is_before(at, request, other):
    return at < other.at or (at == other.at and request < other.request)


@inner
def _place(s, place, at, request):
    event = event_at(s.events, place)
    event.at = at
    event.request = request
