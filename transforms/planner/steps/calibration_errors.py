"""How far predicted times are from measured ones: medians, 90 % quantiles and the side they err on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from transforms.planner.steps.calibration_fit import Evidence

    Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Times:
    """Predicted and measured times of the same points, in seconds."""

    ttft_s: Reals
    tpot_s: Reals
    measured_ttft_s: Reals
    measured_tpot_s: Reals

    def at(self, chosen: NDArray[np.bool_]) -> Times:
        """The points where `chosen` holds."""
        return Times(
            self.ttft_s[chosen], self.tpot_s[chosen], self.measured_ttft_s[chosen], self.measured_tpot_s[chosen]
        )


def errors(times: Times) -> dict[str, float]:
    """Relative errors: median and 90 % quantile of their size, and their own median (below 0: predicted too fast)."""
    token = times.tpot_s / times.measured_tpot_s - 1
    first = times.ttft_s / times.measured_ttft_s - 1
    found = {
        "tpot_median_ratio": np.median(np.abs(token)),
        "tpot_p90_ratio": np.quantile(np.abs(token), 0.9),
        "tpot_bias_factor": np.median(token),
        "ttft_median_ratio": np.median(np.abs(first)),
        "ttft_p90_ratio": np.quantile(np.abs(first), 0.9),
        "ttft_bias_factor": np.median(first),
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def by_kind(times: Times, seen: Evidence) -> dict[str, dict[str, float]]:
    """Errors of all points together, of dense models and of mixtures of experts, where there are any."""
    is_moe = seen.work.expert_bytes > np.zeros_like(times.tpot_s)
    kinds = {"all": np.ones_like(is_moe), "dense": ~is_moe, "moe": is_moe}
    return {kind: errors(times.at(chosen)) for kind, chosen in kinds.items() if chosen.any()}
