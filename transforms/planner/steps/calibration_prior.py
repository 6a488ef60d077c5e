"""Where a fit of step times starts and what it is drawn to: a Gaussian prior over the parameters of all families.

A family is an engine on a generation of GPUs. Each parameter, on a scale where it is free (log, or log-odds for ratios
of the data sheet), is the sum of a value common to all, a deviation of the engine, of the generation, and of the
family; so a family with few models leans on the others, and one that was never measured can be filled in.
The spreads were chosen once so that (model, GPU) groups left out are predicted best, and are part of the code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.steps.step_calibration import RATIOS, StepParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Reals = NDArray[np.float64]

NAMES = tuple(f.name for f in fields(StepParameters))
_DEFAULTS = StepParameters()


@dataclass(frozen=True)
class Spread:
    """Standard deviations on the free scale: of the common value and of the three deviations from it."""

    common: float
    engine: float
    generation: float
    family: float


_GEMM, _EXPERT = Spread(0.4, 0.36, 0.3, 0.04), Spread(0.47, 0.09, 0.17, 0.07)
_OVERHEAD = Spread(0.53, 0.2, 0.17, 0.06)
SPREADS = {
    "weight_bandwidth_ratio": Spread(0.29, 0.16, 0.17, 0.04),
    "expert_bandwidth_ratio": Spread(0.29, 0.16, 0.17, 0.05),
    "kv_bandwidth_ratio": Spread(0.29, 0.2, 0.17, 0.05),
    "bf16_gemm_ratio": _GEMM,
    "fp8_gemm_ratio": _GEMM,
    "fp4_gemm_ratio": _GEMM,
    "bf16_expert_ratio": _EXPERT,
    "fp8_expert_ratio": _EXPERT,
    "fp4_expert_ratio": _EXPERT,
    "attention_ratio": Spread(0.5, 0.1, 0.13, 0.14),
    "link_ratio": Spread(1.7, 0.2, 0.39, 0.04),
    "collective_s": Spread(0.7, 0.05, 0.1, 0.04),
    "activation_passes": Spread(0.72, 0.06, 0.11, 0.01),
    "dispatch_passes": Spread(1.0, 0.08, 0.11, 0.02),
    "step_overhead_s": _OVERHEAD,
    "kernel_overhead_s": Spread(0.38, 0.1, 0.1, 0.04),
    "expert_overhead_s": Spread(0.6, 0.24, 0.3, 0.08),
    "sequence_overhead_s": Spread(0.53, 0.1, 0.1, 0.06),
    "first_token_s": Spread(0.7, 0.81, 0.63, 0.42),
    "first_token_steps": Spread(0.3, 0.46, 0.21, 0.09),
    "data_rank_steps": Spread(0.7, 1.2, 0.1, 0.04),
    "burst_ratio": Spread(0.5, 0.46, 0.42, 0.26),
}


def free(parameters: StepParameters) -> Reals:
    """Values of `parameters` on the free scale, in the order of NAMES."""
    values = np.array([getattr(parameters, name) for name in NAMES])
    is_ratio = np.array([name in RATIOS for name in NAMES])
    result: Reals = np.where(is_ratio, np.log(values / np.where(is_ratio, 1 - values, 1.0)), np.log(values))
    return result


def bound(values: Reals) -> dict[str, Reals]:
    """Parameters by name from their values on the free scale, one column a parameter."""
    return {
        name: 1 / (1 + np.exp(-values[:, at])) if name in RATIOS else np.exp(values[:, at])
        for at, name in enumerate(NAMES)
    }


MEANS = free(_DEFAULTS)


def precisions(families: list[tuple[str, str]]) -> Reals:
    """Inverse covariance over `families` (engine, generation) of each parameter: parameters × families × families."""
    same_engine = np.array([[a[0] == b[0] for b in families] for a in families], dtype=float)
    same_generation = np.array([[a[1] == b[1] for b in families] for a in families], dtype=float)
    itself = np.eye(len(families))
    covariances = [
        s.common**2 + s.engine**2 * same_engine + s.generation**2 * same_generation + s.family**2 * itself
        for s in (SPREADS[name] for name in NAMES)
    ]
    return np.linalg.inv(np.array(covariances))
