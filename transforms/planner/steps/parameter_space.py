"""Parameters of the step-time model as unbounded numbers: what a fit searches in and carries over to other GPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from transforms.planner.replay.replay_costs import ReplayParameters
from transforms.planner.steps.step_calibration import RATIOS, StepParameters, launch_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from transforms.planner.steps.step_work import StepWork

    Reals = NDArray[np.float64]

MIXED = "mixed_context_factor"
USUAL_MIXED = 0.3
"""Where a fit of `mixed_context_factor` starts."""


def carried_over(
    fitted: ReplayParameters, from_start: ReplayParameters, to_start: ReplayParameters, names: Sequence[str]
) -> ReplayParameters:
    """A fit for another GPU: what it changed against the catalog's values of its own GPU, changed in the other's."""
    changed = free_of(fitted, names) - free_of(from_start, names)
    return bound_to(free_of(to_start, names) + changed, names, to_start)


def merged_overheads(start: ReplayParameters, work: StepWork) -> ReplayParameters:
    """One overhead a step: a log of one model cannot tell its layers' share of it."""
    step = start.step
    merged_s = step.step_overhead_s + launch_s(work, step)
    merged = replace(step, step_overhead_s=merged_s, kernel_overhead_s=0.0, expert_overhead_s=0.0)
    return ReplayParameters(merged, start.mixed_context_factor or USUAL_MIXED)


def free_of(parameters: ReplayParameters, names: Sequence[str]) -> Reals:
    """Parameters as unbounded numbers: logits of ratios, logarithms of the others."""
    values = [max(getattr(parameters.step, name, parameters.mixed_context_factor), 1e-9) for name in names]
    values = [min(value, 0.98) if name in RATIOS else value for name, value in zip(names, values, strict=True)]
    return np.array(
        [
            np.log(value / (1 - value)) if name in RATIOS else np.log(value)
            for name, value in zip(names, values, strict=True)
        ]
    )


def bound_to(free: Reals, names: Sequence[str], start: ReplayParameters) -> ReplayParameters:
    """Parameters of unbounded numbers; those without a name are as in `start`."""
    values = {
        name: float(1 / (1 + np.exp(-value)) if name in RATIOS else np.exp(value))
        for name, value in zip(names, free, strict=True)
    }
    known = {f.name for f in fields(StepParameters)}
    step = replace(start.step, **{name: value for name, value in values.items() if name in known})
    return ReplayParameters(step, values[MIXED])
