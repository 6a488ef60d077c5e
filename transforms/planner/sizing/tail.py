"""How sure the peak of one busy hour is: a generalised Pareto tail over the top 5 % of its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

TAIL_RATIO = 0.05
PEAK_RATIO = 0.01
"""The peak is the 99 % quantile of the seconds: a fifth of the tail lies above it."""
LARGEST_SHAPE = 0.5
"""Shapes are kept within ±0.5: beyond, the variance of what exceeds is not finite, or its end is cut off."""


@dataclass(frozen=True)
class Tail:
    """Exceedances over `threshold`: P(more than x above it) = (1 + shape·x/scale)^(−1/shape)."""

    threshold: float
    scale: float
    shape: float
    clusters: int
    """Runs of seconds above the threshold: seconds next to each other say the same."""

    def above(self, survival: Reals) -> Reals:
        """What is exceeded with probability `survival` among the exceedances."""
        if abs(self.shape) < 1e-9:  # noqa: PLR2004 - the limit is the exponential distribution
            exponential: Reals = -self.scale * np.log(survival)
            return exponential
        found: Reals = self.scale / self.shape * (survival**-self.shape - 1)
        return found

    def peak_factors(self, draws: int, random: np.random.Generator) -> Reals:
        """`draws` peaks of an hour like this one over the peak of its fit: redrawn from as many exceedances as runs."""
        redrawn = self.above(1 - random.random((draws, max(self.clusters, 2))))
        peaks = np.quantile(redrawn, 1 - PEAK_RATIO / TAIL_RATIO, axis=1)
        fitted = float(self.above(np.array([PEAK_RATIO / TAIL_RATIO]))[0])
        factors: Reals = (self.threshold + peaks) / (self.threshold + fitted)
        return factors


def tail_of(seconds: Reals) -> Tail | None:
    """Tail of an hour's 1 s means by probability-weighted moments (Hosking & Wallis 1987); None where it is flat."""
    threshold = float(np.quantile(seconds, 1 - TAIL_RATIO))
    is_above = seconds > threshold
    excess = np.sort(seconds[is_above] - threshold)
    count = len(excess)
    if count < 2 or threshold <= 0:  # noqa: PLR2004 - two moments
        return None
    mean = float(excess.mean())
    weighted = float((excess * (count - 1 - np.arange(count))).sum()) / (count * (count - 1))
    if mean - 2 * weighted <= 0:
        return None
    shape = float(np.clip(2 - mean / (mean - 2 * weighted), -LARGEST_SHAPE, LARGEST_SHAPE))
    runs = int((is_above & ~np.concatenate([[False], is_above[:-1]])).sum())
    return Tail(threshold, mean * (1 - shape), shape, runs)
