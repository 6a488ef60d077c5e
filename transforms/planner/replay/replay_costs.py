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


def replay_costs(work: StepWork, parameters: ReplayParameters, drafts: int = 0, ranks: int = 1) -> StepCosts:
    """Seconds of a step of `work` at `parameters`, as the replay's kernel reads them: of one of `ranks` data ranks."""
    costs = step_costs(calibrated(work, parameters.step, "", drafts))
    costs = costs._replace(mixed_context_s=costs.context_memory_s * parameters.mixed_context_factor)
    return rank_costs(costs, ranks)


PER_WORK = (
    "token_compute_s", "sampled_compute_s", "pair_compute_s", "context_memory_s", "sequence_s", "token_s",
    "sequence_memory_s", "mixed_context_s",
)  # fmt: skip
"""Seconds that grow with what a step has to do, the others being what every step takes."""


def rank_costs(costs: StepCosts, ranks: int) -> StepCosts:
    """Costs of a step of one of `ranks` data-parallel ranks by its own work, from `costs` by that of all of them.

    The other ranks are taken to carry as much meanwhile: a step of experts waits for their tokens too.
    """
    if ranks == 1:
        return costs
    changed = {name: getattr(costs, name) * ranks for name in PER_WORK}
    if costs.experts > 0.0:
        untouched = (1.0 - costs.experts_per_token / costs.experts) ** ranks
        changed["experts_per_token"] = costs.experts * (1.0 - untouched)
    return costs._replace(**changed)
