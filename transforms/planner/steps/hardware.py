"""An engine's step-time model from the model's shape, the GPU's data sheet and a calibration of the engine on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError
from transforms.planner.steps.step_calibration import Calibration, calibrated
from transforms.planner.steps.step_time import of_rank
from transforms.planner.steps.step_work import Layout, step_work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.catalog import Gpu
    from transforms.fleet import Engine
    from transforms.planner.steps.step_time import StepModel
    from transforms.planner.steps.step_work import StepWork

ASSUMED = Calibration("vllm", "", ())
"""What holds where there is no calibration at all: the values that a fit starts from."""


def engine_work(config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine) -> StepWork:
    """Work of one step of one replica of the model in a decoded config.json under `engine`, all data ranks together."""
    ranks = engine.tensor_parallel_size * engine.data_parallel_size
    layout = Layout(
        tensor=engine.tensor_parallel_size,
        pipeline=engine.pipeline_parallel_size,
        data=engine.data_parallel_size,
        expert=ranks if engine.enable_expert_parallel else 1,
    )
    return step_work(config, where, gpu, layout, engine_name=engine.name, kv_cache_dtype=engine.kv_cache_dtype)


def step_model(
    config: Mapping[str, Any], where: str, gpu: Gpu, engine: Engine, calibration: Calibration = ASSUMED
) -> StepModel:
    """Step-time model of one engine of the model in a decoded config.json: of a replica, or of each of its data ranks.

    CatalogError for pipeline parallelism, and where the GPU's entry lacks a peak or a link it needs.
    """
    stages = engine.pipeline_parallel_size
    if stages != 1:
        raise CatalogError(
            f"{where}: a plan's step times are for tensor, data and expert parallelism, not for "
            f"pipeline_parallel_size = {stages}; set it to 1 (kvledger kv still counts its memory, kvledger predict "
            "its benchmark)"
        )
    work = engine_work(config, where, gpu, engine)
    together = calibrated(work, calibration.parameters, calibration.provenance, engine.speculative_tokens)
    return of_rank(together, engine.data_parallel_size)
