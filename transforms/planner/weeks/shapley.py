"""The change between two states split over what differs: each factor's mean marginal effect over all orders."""

from __future__ import annotations

from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]
    Value = Callable[[frozenset[str]], Reals]


def shapley(value: Value, factors: Sequence[str]) -> dict[str, Reals]:
    """Part of value(all) − value(none) that each factor has, of the shape of `value`; they add up to it.

    `value` gives the measures with a set of factors as they are now and the others as they were; it is asked once for
    each of the 2^n sets. Source: Shapley 1953, the weights |S|! (n − |S| − 1)! / n!.
    """
    count = len(factors)
    known = {
        frozenset(chosen): value(frozenset(chosen))
        for size in range(count + 1)
        for chosen in combinations(factors, size)
    }
    parts = {}
    for factor in factors:
        total = np.zeros_like(known[frozenset()])
        for chosen, before in known.items():
            if factor not in chosen:
                weight = factorial(len(chosen)) * factorial(count - len(chosen) - 1) / factorial(count)
                total += weight * (known[chosen | {factor}] - before)
        parts[factor] = total
    return parts
