"""KV blocks: what a request holds, and what one more token each costs a whole batch, from counts of classes.

A decoding sequence needs a new block when its tokens less one are a multiple of the block. As all sequences advance
together, those of one class, (1 − base) mod block, do so whenever the counter mod block is that number: counts of the
classes will do, and no list is walked. A kind with a largest number of blocks drops a sequence from its class when it
is full (caps).
"""

from __future__ import annotations

from transforms.planner.kernel.clock import added
from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.heap import push, removed
from transforms.planner.kernel.tables import class_at, count_at, heap_at, kind_at, seat_kind_at


@inner
def blocks_of(kind, tokens):
    """Blocks of one kind under `tokens` tokens, without the cap."""
    if kind.shift >= 0:
        return (tokens + kind.block - 1) >> kind.shift
    return (tokens + kind.block - 1) // kind.block


@inner
def turn_of(kind, number):
    """`number` mod block, 0 … block − 1 for negative ones too."""
    if kind.shift >= 0:
        return number & (kind.block - 1)
    return number % kind.block


@inner
def units_of(s, tokens):
    """Units a request with slots for `tokens` tokens holds."""
    total = s.fixed_units
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        total += min(blocks_of(kind, tokens), kind.most) * kind.units
    return total


@inner
def slots_held(s, replica, seat):
    """Token slots the decoding sequence of `seat` holds between two steps: those of the last step it was in."""
    last = 1 if seat.joined == replica.counter else replica.advanced
    return seat.base + replica.counter + s.drafts - last


@inner
def step_units(s, replica, number):
    """Units the decoding sequences of replica `number` need for their next step."""
    total = -replica.over
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        start = (number * s.kind_count + g) * s.class_count
        found = count_at(s.class_counts, start + turn_of(kind, replica.counter)).v
        back = 1
        while back < replica.advanced and back < kind.block:
            found += count_at(s.class_counts, start + turn_of(kind, replica.counter - back)).v
            back += 1
        total += found * kind.units
    return total


@inner
def further_units(s, replica, number, steps):
    """Units the decoding sequences need for the `steps` steps after the next one."""
    total = 0
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        start = (number * s.kind_count + g) * s.class_count
        found, rest = 0, steps
        if steps >= kind.block:
            for turn in range(kind.block):
                found += count_at(s.class_counts, start + turn).v
            found *= steps // kind.block
            rest = steps % kind.block
        turn = turn_of(kind, replica.counter)
        for _ in range(rest):
            turn = turn + 1 if turn + 1 < kind.block else 0
            found += count_at(s.class_counts, start + turn).v
        total += found * kind.units
    return total


@once
def steps_that_fit(s, replica, number, most, room):
    """Steps (1 … most) until the decoding sequences need more than `room` units; the next one is paid for."""
    bound = 0
    for g in range(s.kind_count):
        bound += blocks_of(kind_at(s.kinds, g), most) * kind_at(s.kinds, g).units
    if bound * replica.decoding <= room:
        return most
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) >> 1
        if further_units(s, replica, number, middle - 1) <= room:
            low = middle
        else:
            high = middle - 1
    return low


@once
def note_crossings(s, replica, number, steps, first, slope):
    """Add to each class the times at which it gets a block in the coming `steps` steps.

    Steps take first, first + slope, … seconds. With speculation several classes get one in the same step.
    """
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        start = (number * s.kind_count + g) * s.class_count
        if replica.advanced > 1:
            for back in range(min(replica.advanced, kind.block)):
                _note(s, start + turn_of(kind, replica.counter - back), replica.clock, replica.clock_low)
            continue
        turn = turn_of(kind, replica.counter)
        for j in range(min(steps, kind.block)):
            offset = j * first + slope * (0.5 * j * (j - 1))
            _note(s, start + turn, replica.clock, replica.clock_low + offset)
            turn = turn + 1 if turn + 1 < kind.block else 0
        if steps > kind.block:
            _note_rounds(s, replica, start, kind, steps, first, slope)


@inner
def _note(s, place, high, low):
    own = class_at(s.classes, place)
    own.crossed, own.crossed_low = added(own.crossed, own.crossed_low + low, high)


@inner
def _note_rounds(s, replica, start, kind, steps, first, slope):
    """Add what the classes get after the first `block` steps: Σ over i = 1 … of the begin of step j + i·block."""
    turn, block = turn_of(kind, replica.counter), kind.block
    for j in range(min(block, steps - block)):
        place = start + turn
        turn = turn + 1 if turn + 1 < block else 0
        if count_at(s.class_counts, place).v == 0:  # nobody reads the times of an empty class
            continue
        more = (steps - 1 - j) // block
        ones = more * (more + 1) // 2
        squares = more * (more + 1) * (2 * more + 1) // 6
        begun = more * j + block * ones
        pairs = more * j * j + 2 * j * block * ones + block * block * squares
        _note(s, place, more * replica.clock, more * replica.clock_low)
        _note(s, place, first * begun + slope * 0.5 * (pairs - begun), 0.0)


@once
def join_classes(s, replica, number, seat, place):
    """Count a sequence that decodes from the next step on in its classes."""
    slots = seat.base + replica.counter + s.drafts
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        item = place * s.kind_count + g
        own = seat_kind_at(s.seat_kinds, item)
        own.is_live = 0
        own.crossed = 0.0
        own.crossed_low = 0.0
        if slots - 1 >= kind.most * kind.block:
            continue
        own.is_live = 1
        own.turn = turn_of(kind, 1 - seat.base - s.drafts)
        at = (number * s.kind_count + g) * s.class_count + own.turn
        count_at(s.class_counts, at).v += 1
        own.crossed, own.crossed_low = class_at(s.classes, at).crossed, class_at(s.classes, at).crossed_low
        if replica.advanced > 1:
            early = blocks_of(kind, slots - 1) - blocks_of(kind, slots - replica.advanced)
            replica.over += early * kind.units
            own.crossed, own.crossed_low = added(own.crossed, own.crossed_low, early * replica.clock)
        if s.has_caps and kind.most < (1 << 30):
            key = replica.counter + kind.most * kind.block - (slots - 1)
            start = number * s.seat_count * s.kind_count
            replica.caps = push(s.cap_heap, start, replica.caps, key, item)


@inner
def leave_class(s, replica, number, item, g):
    """Take a sequence out of its class; what remains noted is Σ crossing times since it joined."""
    own = seat_kind_at(s.seat_kinds, item)
    if own.is_live != 1:
        return
    own.is_live = 0
    at = (number * s.kind_count + g) * s.class_count + own.turn
    count_at(s.class_counts, at).v -= 1
    crossed = class_at(s.classes, at)
    own.crossed = (crossed.crossed - own.crossed) + (crossed.crossed_low - own.crossed_low)
    own.crossed_low = 0.0
    if s.has_caps and kind_at(s.kinds, g).most < (1 << 30):
        start = number * s.seat_count * s.kind_count
        replica.caps = removed(s.cap_heap, start, replica.caps, item)


@once
def drop_full(s, replica, number):
    """Take sequences out of the classes of kinds in which they have all blocks they will ever get."""
    start = number * s.seat_count * s.kind_count
    while replica.caps > 0 and heap_at(s.cap_heap, start).key <= replica.counter:
        item = heap_at(s.cap_heap, start).item
        leave_class(s, replica, number, item, item % s.kind_count)


@once
def decode_unit_s(s, replica, seat, place, span):
    """(∫ units dt, units held) of the decode, `span` seconds long and ending now, of a sequence out of its classes."""
    first = seat.target + s.drafts
    last = slots_held(s, replica, seat)
    total, held = s.fixed_units * span, s.fixed_units
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        before, after = min(blocks_of(kind, first), kind.most), min(blocks_of(kind, last), kind.most)
        gained = after - before
        held += after * kind.units
        own = seat_kind_at(s.seat_kinds, place * s.kind_count + g)
        total += kind.units * (before * span + ((gained * replica.clock - own.crossed) + gained * replica.clock_low))
    return total, held
