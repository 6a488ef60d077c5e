"""What a step of a deployment costs in the replay: work at the data sheet's limits, under a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transforms.planner.replay.step_costs import step_costs
from transforms.planner.steps.step_calibration import StepParameters, calibrated
from transforms.planner.steps.step_time import of_rank

if TYPE_CHECKING:
    from transforms.planner.replay.step_costs import StepCosts
    from transforms.planner.steps.step_work import StepWork


@dataclass(frozen=True)
class ReplayParameters:
    """Parameters of the step-time model, and what only a replay sees of them."""

    step: StepParameters
    mixed_context_factor: float = 0.0
    """Reading the KV of the decoding sequences once more in steps that also prefill, as a share of its time."""


def replay_costs(work: StepWork, parameters: ReplayParameters, drafts: int = 0, ranks: int = 1) -> StepCosts:
    """Seconds of a step of `work` at `parameters`, as the replay's kernel reads them: of one of `ranks` data ranks."""
    costs = step_costs(of_rank(calibrated(work, parameters.step, "", drafts), ranks))
    return costs._replace(mixed_context_s=costs.context_memory_s * parameters.mixed_context_factor)
