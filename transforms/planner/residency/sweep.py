"""Exact means of 1 s bins of what resides: a sweep over events, without a sort and without a loop over rows.

A stretch [start, end) in which a value grows steadily is two events: at its start the value steps up and its slope
begins, at its end both are taken back. With u the seconds left in an event's bin, each bin sums the steps (a), steps·u
(b), slopes (c), slopes·u (d) and slopes·u²/2 (e); running sums over the dense range of bins give slope S and value V at
each bin's beginning, and the mean of the bin is V + S/2 + b + e.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from transforms.attempts import parts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Wholes = NDArray[np.int64]

MICROS = 1_000_000
SLOPE_QUANTUM_PER_S = 2.0**-32
"""Slopes are whole multiples of this, so that sums of them are exact and cancel: a residue would be integrated over
the whole week. It moves a stretch's value by less than 1e-7 of a token in ten minutes."""

Ramp = tuple["Reals | float", "Reals | None"]
"""Value at the start and at the end of each stretch; None where it stays level."""


class Sweep:
    """Accumulates stretches of several curves that share their instants; `means` gives each curve's 1 s means."""

    def __init__(self, window_s: int, curves: int) -> None:
        """Start with nothing resident in [0, window_s), for `curves` curves."""
        self._window_s = window_s
        self._sums = np.zeros((curves, 5, window_s + 1))

    def add(self, start_us: Wholes, end_us: Wholes, *ramps: Ramp) -> None:
        """Let one ramp per curve reside from `start_us` to `end_us`; what lies outside the window is cut off."""
        for rows in parts_of(len(start_us)):
            parts = [(_rows(first, rows), None if last is None else last[rows]) for first, last in ramps]
            self._add_chunk(start_us[rows], end_us[rows], parts)

    def means(self) -> Reals:
        """Mean of each second, shape (curves, window_s)."""
        return np.stack([_bin_means(sums[:, :-1]) for sums in self._sums])

    def _add_chunk(self, start_us: Wholes, end_us: Wholes, ramps: list[Ramp]) -> None:
        """Add stretches; those that begin and end in one bin add their area to it, which needs no slope."""
        begin_us, finish_us = np.maximum(start_us, 0), np.maximum(end_us, 0)
        full_s, late_s = (end_us - start_us) / MICROS, (begin_us - start_us) / MICROS
        kept_s = (finish_us - begin_us) / MICROS
        begin, end = self._instants(begin_us), self._instants(finish_us)
        is_inside = begin[0] == end[0]
        inside, across = np.flatnonzero(is_inside), np.flatnonzero(~is_inside)
        bins, kept_inside_s = begin[0][inside], kept_s[inside]
        begin, end = ((instant[0][across], instant[1][across]) for instant in (begin, end))
        for sums, (from_value, to_value) in zip(self._sums, ramps, strict=True):
            rise = 0.0 if to_value is None else to_value - from_value
            slope = np.broadcast_to(rise / np.where(full_s > 0, full_s, np.inf), full_s.shape)
            first = from_value + slope * late_s
            _sum_by_bin(sums[1], bins, kept_inside_s * (first[inside] + slope[inside] * kept_inside_s / 2))
            first = first[across]
            if to_value is not None:
                bend = _quantised(slope[across])
                _bend(sums, begin, bend)
                _bend(sums, end, -bend)
                last = first + bend * kept_s[across]
            else:
                last = first
            _step(sums, begin, first)
            _step(sums, end, -last)

    def _instants(self, at_us: Wholes) -> tuple[Wholes, Reals]:
        """Bin of each instant (the last one holds all beyond the window) and the seconds left in that bin."""
        whole_s = at_us // MICROS
        rest_s = 1.0 - (at_us - whole_s * MICROS) / MICROS
        return np.minimum(whole_s, self._window_s), rest_s


def _bin_means(sums: Reals) -> Reals:
    """Mean of each bin of one curve from its five sums per bin; in place, for a week has 604,800 of them."""
    step, step_rest, slope, slope_rest, slope_square = sums
    slope_before = np.cumsum(slope)
    slope_before -= slope
    grown = slope_before + step
    grown += slope_rest
    mean: Reals = np.cumsum(grown)
    mean -= grown
    slope_before /= 2
    for part in (slope_before, step_rest, slope_square):
        mean += part
    return mean


def _rows(value: Reals | float, rows: slice) -> Reals | float:
    return value[rows] if isinstance(value, np.ndarray) else value


def _quantised(slope: Reals) -> Reals:
    return np.rint(slope / SLOPE_QUANTUM_PER_S) * SLOPE_QUANTUM_PER_S


def _step(sums: Reals, instants: tuple[Wholes, Reals], value: Reals) -> None:
    bins, rest_s = instants
    _sum_by_bin(sums[0], bins, value)
    _sum_by_bin(sums[1], bins, value * rest_s)


def _bend(sums: Reals, instants: tuple[Wholes, Reals], slope: Reals) -> None:
    bins, rest_s = instants
    slope_rest = slope * rest_s
    _sum_by_bin(sums[2], bins, slope)
    _sum_by_bin(sums[3], bins, slope_rest)
    _sum_by_bin(sums[4], bins, slope_rest * rest_s / 2)


def _sum_by_bin(total: Reals, bins: Wholes, weights: Reals) -> None:
    """Add to `total` in a fixed order (np.bincount runs through the rows once), so equal input gives equal bytes."""
    if len(bins):
        lowest = int(bins.min())
        counted = np.bincount(bins - lowest, weights)
        total[lowest : lowest + len(counted)] += counted
