"""Waiting queue and running list of one replica. Together they stand in the order of arrival, whatever is preempted."""

from __future__ import annotations

from transforms.planner.kernel.clock import added
from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.heap import push, removed
from transforms.planner.kernel.pool import (
    blocks_of,
    decode_unit_s,
    join_classes,
    leave_class,
    slots_held,
    units_of,
)
from transforms.planner.kernel.prefix import leave_or_pin
from transforms.planner.kernel.tables import kind_at, lists_at, request_at, seat_at, whole_at

IN_FLIGHT, COMPLETED, TIMED_OUT = 0, 1, 2
KEY_SHIFT = 31


@inner
def output_limit(s, request):
    """Tokens a request makes: cut where the context reaches max_model_len, one at least."""
    return max(1, min(whole_at(s.outputs, request).v, s.max_model_len - whole_at(s.prompts, request).v))


@once
def queue_last(s, replica, request, tokens):
    """Put an arrival at the end of the waiting queue."""
    request_at(s.requests, request).next = -1
    if replica.waiting == 0:
        replica.wait_head = request
    else:
        request_at(s.requests, replica.wait_tail).next = request
    replica.wait_tail = request
    replica.waiting += 1
    replica.waiting_tokens += tokens


@once
def queue_first(s, replica, request, tokens):
    """Put a preempted request at the front of the waiting queue."""
    request_at(s.requests, request).next = replica.wait_head if replica.waiting > 0 else -1
    if replica.waiting == 0:
        replica.wait_tail = request
    replica.wait_head = request
    replica.waiting += 1
    replica.waiting_tokens += tokens


@inner
def unqueue_first(s, replica, tokens):
    """Take the first request out of the waiting queue."""
    replica.wait_head = request_at(s.requests, replica.wait_head).next
    replica.waiting -= 1
    replica.waiting_tokens -= tokens


@once
def take_seat(s, replica, start):
    """Seat at the end of the running list."""
    replica.vacant -= 1
    place = lists_at(s.lists, start + replica.vacant).vacant
    seat = seat_at(s.seats, place)
    seat.previous = replica.tail
    seat.next = -1
    if replica.tail >= 0:
        seat_at(s.seats, replica.tail).next = place
    else:
        replica.head = place
    replica.tail = place
    replica.running += 1
    return place


@inner
def unlink(s, replica, seat):
    """Take a seat out of the running list; it is not vacant yet."""
    if seat.previous >= 0:
        seat_at(s.seats, seat.previous).next = seat.next
    else:
        replica.head = seat.next
    if seat.next >= 0:
        seat_at(s.seats, seat.next).previous = seat.previous
    else:
        replica.tail = seat.previous


@once
def start_decoding(s, replica, number, place):
    """Let a sequence whose prompt is computed, and whose next token is not its last, decode from the next step on."""
    seat = seat_at(s.seats, place)
    seat.base = seat.target + 1 - replica.counter
    seat.joined = replica.counter
    seat.is_decoding = 1
    seat.since, seat.since_low = replica.clock, replica.clock_low
    seat.area, seat.area_low = replica.area, replica.area_low
    replica.decoding += 1
    replica.context += seat.target + 1
    end = replica.counter + output_limit(s, seat.request) - seat.made
    start = number * s.seat_count
    replica.ends = push(s.end_heap, start, replica.ends, (end << KEY_SHIFT) | seat.request, place)
    join_classes(s, replica, number, seat, place)


@inner
def stop_decoding(s, replica, number, place):
    """Take a sequence out of the batch and charge it the KV·time of its decode; `made` is brought up to date."""
    seat = seat_at(s.seats, place)
    start = number * s.seat_count
    replica.ends = removed(s.end_heap, start, replica.ends, place)
    replica.decoding -= 1
    replica.context -= seat.base + replica.counter
    seat.is_decoding = 0
    seat.made += replica.counter - seat.joined
    for g in range(s.kind_count):
        leave_class(s, replica, number, place * s.kind_count + g, g)
    span = (replica.clock - seat.since) + (replica.clock_low - seat.since_low)
    request = request_at(s.requests, seat.request)
    if seat.joined == replica.counter:
        _forget_early(s, replica, seat)
    else:
        area = (replica.area - seat.area) + (replica.area_low - seat.area_low)
        request.kv_tokens += seat.base * span + area
        unit_s, seat.held = decode_unit_s(s, replica, seat, place, span)
        request.kv_units += unit_s
    seat.tokens = seat.base + replica.counter - 1


@inner
def _forget_early(s, replica, seat):
    """Undo what join_classes noted for a sequence that leaves before its first decode step."""
    seat.held = units_of(s, slots_held(s, replica, seat))
    slots = seat.base + replica.counter + s.drafts
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        if slots - 1 < kind.most * kind.block and replica.advanced > 1:
            early = blocks_of(kind, slots - 1) - blocks_of(kind, slots - replica.advanced)
            replica.over -= early * kind.units


@once
def stop_prefill(s, replica, number, place):
    """Take a seat out of the list of unfinished prompts."""
    start = number * s.seat_count
    at = start
    while lists_at(s.lists, at).partial != place:
        at += 1
    replica.partials -= 1
    for later in range(at, start + replica.partials):
        lists_at(s.lists, later).partial = lists_at(s.lists, later + 1).partial
    seat = seat_at(s.seats, place)
    seat.tokens = seat.computed


@inner
def vacate(s, replica, number, place):
    """Give a seat and its blocks back."""
    leave_or_pin(s, replica, number, seat_at(s.seats, place))
    lists_at(s.lists, number * s.seat_count + replica.vacant).vacant = place
    replica.vacant += 1
    replica.running -= 1


@inner
def leave(s, replica, number, place):
    """Take a running request out between two steps, unfinished."""
    seat = seat_at(s.seats, place)
    if seat.is_decoding:
        stop_decoding(s, replica, number, place)
    else:
        stop_prefill(s, replica, number, place)
    request_at(s.requests, seat.request).made = seat.made
    unlink(s, replica, seat)
    vacate(s, replica, number, place)


@once
def begin_lag(s, replica, number, place):
    """Let an ended request hold its seat and blocks for one further step."""
    seat = seat_at(s.seats, place)
    lists_at(s.lists, number * s.seat_count + replica.lagging).lagging = place
    replica.lagging += 1
    seat.since, seat.since_low = replica.clock, replica.clock_low


@inner
def end_lag(s, replica, number, count):
    """Give back the seats of the `count` requests that have lagged longest; the others have now lagged one step."""
    start = number * s.seat_count
    for at in range(start, start + count):
        place = lists_at(s.lists, at).lagging
        seat = seat_at(s.seats, place)
        span = (replica.clock - seat.since) + (replica.clock_low - seat.since_low)
        request = request_at(s.requests, seat.request)
        request.kv_tokens += seat.tokens * span
        request.kv_units += seat.held * span
        vacate(s, replica, number, place)
    replica.lagging -= count
    for at in range(start, start + replica.lagging):
        lists_at(s.lists, at).lagging = lists_at(s.lists, at + count).lagging
    replica.lag_old = replica.lagging


@inner
def compensate(replica, seconds, counter_sum):
    """Move the clock by `seconds`, in which ∫ counter dt grew by counter·seconds + counter_sum."""
    replica.clock, replica.clock_low = added(replica.clock, replica.clock_low, seconds)
    replica.area, replica.area_low = added(replica.area, replica.area_low, replica.counter * seconds + counter_sum)
