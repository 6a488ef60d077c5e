"""The state at the end of each second since the first arrival, and the mean of used KV over that second."""

from __future__ import annotations

from transforms.planner.kernel.clock import series_sum
from transforms.planner.kernel.compiled import inner, once
from transforms.planner.kernel.pool import turn_of
from transforms.planner.kernel.tables import count_at, kind_at, sample_at


@once
def sample(s, replica, number, steps, first, slope):
    """Write what the coming `steps` steps, the first already scheduled, leave in the series."""
    begin = replica.clock - s.start_s
    used = s.units - replica.free
    for j in range(steps):
        if j > 0:
            for g in range(s.kind_count):
                kind = kind_at(s.kinds, g)
                place = (number * s.kind_count + g) * s.class_count
                used += count_at(s.class_counts, place + turn_of(kind, replica.counter + j)).v * kind.units
        end = (replica.clock - s.start_s) + (series_sum(j + 1, first, slope) + replica.clock_low)
        at = min(int(begin), s.sample_count - 1)
        if at == begin and at > 0:
            _write(s, replica, at - 1, used)
        while at + 1 <= end and at + 1 < s.sample_count:
            sample_at(s.samples, at).area += used * (at + 1 - begin)
            begin = at + 1.0
            if begin < end:
                _write(s, replica, at, used)
            at += 1
        sample_at(s.samples, at).area += used * (end - begin)
        begin = end


@inner
def _write(s, replica, at, used):
    if at < replica.next_sample:
        return
    sample_at(s.samples, at).running += replica.running
    sample_at(s.samples, at).waiting += replica.waiting
    sample_at(s.samples, at).used += used
    replica.next_sample = at + 1


@once
def sample_arrival(s, replica, arrived):
    """Count an arrival during a step into the seconds whose end that step has already written."""
    at = int(arrived - s.start_s)
    if at + s.start_s == arrived and at > 0:
        at -= 1
    while at < replica.next_sample:
        sample_at(s.samples, at).waiting += 1
        at += 1
