"""KV blocks: what a request holds, and what one more token each costs a whole batch, from counts of residue classes.

A decoding sequence needs a new block when its tokens less one are a multiple of the block. As all sequences advance
together, the class (base − 1) mod block tells at which counter it will; `residues` has the sequences of each class, so
no list is walked. A kind with a largest number of blocks drops a sequence from its class when it is full (caps).
"""

from __future__ import annotations

from transforms.planner.kernel.clock import added
from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.heap import push, removed
from transforms.planner.kernel.tables import heap_at, kind_at, residue_at, seat_kind_at


@inner
def blocks_of(kind, tokens):
    """Blocks of one kind under `tokens` tokens, without the cap."""
    if kind.shift >= 0:
        return (tokens + kind.block - 1) >> kind.shift
    return (tokens + kind.block - 1) // kind.block


@inner
def residue_of(kind, number):
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
        start = (number * s.kind_count + g) * s.residue_count
        for back in range(min(replica.advanced, kind.block)):
            total += residue_at(s.residues, start + residue_of(kind, back - replica.counter)).count * kind.units
    return total


@inner
def further_units(s, replica, number, steps):
    """Units the decoding sequences need for the `steps` steps after the next one."""
    total = 0
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        start = (number * s.kind_count + g) * s.residue_count
        rounds, rest = steps // kind.block, steps % kind.block
        found = 0
        if rounds > 0:
            for residue in range(kind.block):
                found += residue_at(s.residues, start + residue).count
            found *= rounds
        for ahead in range(1, rest + 1):
            found += residue_at(s.residues, start + residue_of(kind, -(replica.counter + ahead))).count
        total += found * kind.units
    return total


@once
def steps_that_fit(s, replica, number, most, room):
    """Steps (1 … most) until the decoding sequences need more than `room` units; the next one is paid for."""
    bound = 0
    for g in range(s.kind_count):
        bound += ((most - 1) // kind_at(s.kinds, g).block + 1) * kind_at(s.kinds, g).units
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
    """Add to each class the times at which it gets a block in the coming `steps` steps; units of all but the first.

    Steps take first, first + slope, … seconds. With speculation several classes get one in the same step.
    """
    total = 0
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        start = (number * s.kind_count + g) * s.residue_count
        if replica.advanced > 1:
            for back in range(min(replica.advanced, kind.block)):
                _note(s, start + residue_of(kind, back - replica.counter), replica.clock, replica.clock_low)
            continue
        residue, offset = residue_of(kind, -replica.counter), 0.0
        for j in range(min(steps, kind.block)):
            place = start + residue
            count = residue_at(s.residues, place).count
            if count > 0:  # nobody reads the times of an empty class
                _note(s, place, replica.clock, replica.clock_low + offset)
                more = (steps - 1 - j) // kind.block if steps > kind.block else 0
                total += count * (more + (j > 0)) * kind.units
                if more > 0:
                    _note_rounds(s, place, replica, kind.block, j, more, first, slope)
            residue = residue - 1 if residue > 0 else kind.block - 1
            offset += first + slope * j
    return total


@inner
def _note(s, place, high, low):
    own = residue_at(s.residues, place)
    own.crossed, own.crossed_low = added(own.crossed, own.crossed_low + low, high)


@inner
def _note_rounds(s, place, replica, block, j, more, first, slope):
    """Add Σ over i = 1 … more of the begin of step j + i·block."""
    ones = more * (more + 1) // 2
    squares = more * (more + 1) * (2 * more + 1) // 6
    steps = more * j + block * ones
    pairs = more * j * j + 2 * j * block * ones + block * block * squares
    _note(s, place, more * replica.clock, more * replica.clock_low)
    _note(s, place, first * steps + slope * 0.5 * (pairs - steps), 0.0)


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
        own.residue = residue_of(kind, seat.base + s.drafts - 1)
        at = (number * s.kind_count + g) * s.residue_count + own.residue
        residue = residue_at(s.residues, at)
        residue.count += 1
        own.crossed, own.crossed_low = residue.crossed, residue.crossed_low
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
    at = (number * s.kind_count + g) * s.residue_count + own.residue
    residue = residue_at(s.residues, at)
    residue.count -= 1
    own.crossed = (residue.crossed - own.crossed) + (residue.crossed_low - own.crossed_low)
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
    """∫ units dt over the decode of a sequence that has left its classes, `span` seconds long and ending now."""
    first = seat.target + s.drafts
    last = slots_held(s, replica, seat)
    total = s.fixed_units * span
    for g in range(s.kind_count):
        kind = kind_at(s.kinds, g)
        before, after = min(blocks_of(kind, first), kind.most), min(blocks_of(kind, last), kind.most)
        gained = after - before
        own = seat_kind_at(s.seat_kinds, place * s.kind_count + g)
        total += kind.units * (before * span + ((gained * replica.clock - own.crossed) + gained * replica.clock_low))
    return total
