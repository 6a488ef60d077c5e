"""What a step of a deployment costs in the replay: work at the data sheet's limits, under a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.planner.replay.step_costs import step_costs
from transforms.planner.steps.step_calibration import StepParameters, calibrated
from transforms.planner.steps.step_work import Layout, step_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine
    from transforms.planner.replay.step_costs import StepCosts
    from transforms.planner.steps.step_work import StepWork


@dataclass(frozen=True)
class ReplayParameters:
    """Parameters of the step-time model, and what only a replay sees of them."""

    step: StepParameters
    mixed_context_factor: float = 0.0
    """Reading the KV of the decoding sequences once more in steps that also prefill, as a share of its time."""


def engine_work(config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine) -> StepWork:
    """Work of one step of one replica of the model in a decoded config.json under `engine`."""
    ranks = engine.tensor_parallel_size * engine.data_parallel_size
    layout = Layout(
        tensor=engine.tensor_parallel_size,
        pipeline=engine.pipeline_parallel_size,
        data=engine.data_parallel_size,
        expert=ranks if engine.enable_expert_parallel else 1,
    )
    return step_work(config, where, gpu, layout, engine_name=engine.name, kv_cache_dtype=engine.kv_cache_dtype)


def replay_costs(work: StepWork, parameters: ReplayParameters, drafts: int = 0) -> StepCosts:
    """Seconds of a step of `work` at `parameters`, as the replay's kernel reads them."""
    costs = step_costs(calibrated(work, parameters.step, "", drafts))
    return costs._replace(mixed_context_s=costs.context_memory_s * parameters.mixed_context_factor)
