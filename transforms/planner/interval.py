"""How sure a count is, from how much the days of the week differ: a seeded bootstrap of whole days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

FEWEST_DAYS = 5
DRAWS = 400
LOW_RATIO, HIGH_RATIO = 0.05, 0.95


def day_interval(day_peaks: Reals, count: Callable[[Reals], int], seed: int) -> tuple[int, int] | None:
    """Low and high end (5 % … 95 %) of `count` over weeks redrawn from whole days; None with fewer than 5 days.

    `day_peaks` has one row per demand and one column per day; a day keeps its demands together. A redrawn week takes as
    many days as were seen, each scaled by a log-normal kernel (Silverman's bandwidth), because the largest of the same
    few days could never exceed the largest seen. The kernel's spread is that of the busier half of the days: that
    weekends are quiet is no doubt about Tuesday. Days without traffic do not count as days.
    """
    seen = day_peaks[:, day_peaks.max(axis=0) > 0]
    days = seen.shape[1]
    if days < FEWEST_DAYS:
        return None
    largest = seen.max(axis=0)
    spread = np.log(largest[largest >= np.median(largest)]).std(ddof=1)
    bandwidth = 1.06 * spread * days**-0.2  # Silverman 1986, eq. 3.28: 1.06 σ n^(-1/5)
    random = np.random.default_rng(seed)
    drawn = random.integers(0, days, size=(DRAWS, days))
    scale = np.exp(random.normal(0.0, bandwidth, size=(DRAWS, days)))
    counts = [count((seen[:, picked] * factor).max(axis=1)) for picked, factor in zip(drawn, scale, strict=True)]
    low, high = np.quantile(counts, (LOW_RATIO, HIGH_RATIO), method="inverted_cdf")
    return int(low), int(high)
