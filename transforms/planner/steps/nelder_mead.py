"""The lowest point of a function of a few variables by Nelder and Mead's simplex, restarted; no derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Corner = tuple[float, Reals]

FIRST_STEPS = (0.4, -0.3, 0.2)
"""Size of the simplex at each start, from the best point so far: a simplex can collapse short of the minimum."""
MOST_MOVES = 250
CLOSE = 1.0e-5


def minimum(function: Callable[[Reals], float], start: Reals) -> Reals:
    """Point near `start` where `function` is lowest."""
    best = np.array(start, dtype=np.float64)
    for step in FIRST_STEPS:
        best = _descended(function, best, step)
    return best


def _descended(function: Callable[[Reals], float], start: Reals, step: float) -> Reals:
    points = [start, *(start + step * unit for unit in np.eye(len(start)))]
    corners = sorted(((function(point), point) for point in points), key=_height)
    for _move in range(MOST_MOVES):
        if corners[-1][0] - corners[0][0] <= CLOSE * abs(corners[0][0]):
            break
        corners = sorted(_moved(function, corners), key=_height)
    return corners[0][1]


def _height(corner: Corner) -> float:
    return corner[0]


def _moved(function: Callable[[Reals], float], corners: list[Corner]) -> list[Corner]:
    """Corners after one move: the worst one mirrored, stretched or drawn in, else all drawn to the best."""
    *others, (worst, away) = corners
    middle = np.mean([point for _, point in others], axis=0)

    def tried(distance: float) -> Corner:
        point = middle + distance * (middle - away)
        return function(point), point

    mirrored = tried(1.0)
    if mirrored[0] < corners[0][0]:
        return [*others, min(mirrored, tried(2.0), key=_height)]
    if mirrored[0] < others[-1][0]:
        return [*others, mirrored]
    inside = tried(0.5 if mirrored[0] < worst else -0.5)
    if inside[0] < min(worst, mirrored[0]):
        return [*others, inside]
    best = corners[0][1]
    drawn = [(best + point) / 2 for _, point in corners[1:]]
    return [corners[0], *((function(point), point) for point in drawn)]
