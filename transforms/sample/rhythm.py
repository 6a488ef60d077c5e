"""When sessions start: the rhythm of day and week, and the clumping of real arrivals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transforms.sample.services import DAY_S

Floats = npt.NDArray[np.float64]

BIN_S = 300.0
"""Width of the bins whose rate varies by chance."""

CLUMP_SHAPE = 4.0
"""Shape of the gamma factor on each bin's rate: arrivals are over-dispersed (ServeGen NSDI'26, BurstGPT: gamma fits
production traffic where Poisson does not); the size is assumed."""

OFFICE_HOURS = (
    0.2, 0.15, 0.1, 0.1, 0.15, 0.4, 1.5, 4.5, 8.5, 10.0, 9.5, 7.5, 7.0, 9.5, 10.0, 9.0, 7.0, 4.5, 2.5, 1.8, 1.5, 1.2,
    0.8, 0.4,
)  # fmt: skip
"""Relative starts by hour of day, UTC, of people at work in central Europe; assumed, as all rhythms here."""

CONSUMER_HOURS = (
    2.0, 1.3, 0.9, 0.7, 0.8, 1.2, 2.2, 4.0, 6.0, 7.0, 7.5, 7.8, 7.2, 7.5, 7.8, 7.5, 7.2, 7.5, 8.5, 9.5, 9.8, 8.5, 6.0,
    3.5,
)  # fmt: skip
"""The same of a public chat: flatter, with an evening peak."""

OFFICE_WEEK = (0.97, 1.06, 1.07, 1.03, 0.87, 0.1, 0.08)
"""Monday to Sunday, relative to a mean working day; DynamoLLM and SageServe describe the same shape without figures
one could copy."""

CONSUMER_WEEK = (1.0, 1.03, 1.04, 1.02, 0.95, 0.62, 0.58)
"""The same of a public chat."""


def session_starts(
    rng: np.random.Generator, day: int, sessions_per_day: float, hours: tuple[float, ...], week: tuple[float, ...]
) -> Floats:
    """Start times in s since the first day of the sessions that begin on `day`, rising."""
    bins = round(DAY_S / BIN_S)
    centres_h = (np.arange(bins) + 0.5) * BIN_S / 3600
    rate = np.interp(centres_h, np.arange(25) + 0.5, [*hours, hours[0]])
    rate *= rng.gamma(CLUMP_SHAPE, 1 / CLUMP_SHAPE, bins)
    mean = sessions_per_day * week[day % 7] * rate / rate.sum()
    counts = rng.poisson(mean)
    starts = np.repeat(np.arange(bins) * BIN_S, counts) + rng.random(int(counts.sum())) * BIN_S
    return np.sort(starts) + day * DAY_S


def burst_starts(rng: np.random.Generator, at_s: float, sessions: float, decay_s: float) -> Floats:
    """Start times in s of about `sessions` that a mailing or an outage elsewhere sends at `at_s`, rising."""
    return np.sort(at_s + rng.exponential(decay_s, int(rng.poisson(sessions))))
