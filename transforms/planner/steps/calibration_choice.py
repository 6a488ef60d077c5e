"""Which calibration holds for an engine on a GPU: the measured one, else the nearest measured family, said so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from transforms.planner.provenance import ASSUMED
from transforms.planner.steps.step_calibration import PRODUCT_RATIOS, Calibration
from transforms.planner.steps.step_work import widened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transforms.catalog import Gpu
    from transforms.planner.steps.step_calibration import StepParameters

# NVIDIA's compute capabilities (CUDA programming guide), the newest generation first.
_GENERATIONS = ((10.0, "blackwell"), (9.0, "hopper"), (8.9, "ada"), (8.0, "ampere"), (7.5, "turing"), (7.0, "volta"))
_ORDER = [name for _, name in reversed(_GENERATIONS)]
WIDER = 2.0
"""How much further off a family that was not measured may be than groups left out of a measured one: assumed."""


def generation_of(gpu: Gpu) -> str:
    """Generation of `gpu` by its compute capability; another vendor's GPU counts as what multiplies the same dtypes."""
    if gpu.compute_capability is None:
        return next((name for dtype, name in (("fp4", "blackwell"), ("fp8", "hopper")) if has(gpu, dtype)), "ampere")
    found = (name for least, name in _GENERATIONS if gpu.compute_capability >= least)
    return next(found, _ORDER[0])


def has(gpu: Gpu, dtype: str) -> bool:
    """Whether `gpu` multiplies in `dtype`."""
    return dtype in gpu.peak_flop_per_s


def chosen(calibrations: Sequence[Calibration], engine: str, gpu: Gpu) -> Calibration:
    """Calibration for `engine` on `gpu`, the starting values where there is none at all.

    Without measured points of that GPU under that engine the nearest family is taken (its own engine before vLLM's,
    then the nearest generation): provenance `assumed`, its errors widened, its source naming it, and its compute
    efficiencies carried over to the GPU's balance of compute and bandwidth.
    """
    generation = generation_of(gpu)
    ours = [one for one in calibrations if one.engine == engine]
    ours = ours or [one for one in calibrations if one.engine == "vllm"] or list(calibrations)
    if not ours:
        return Calibration(engine, generation, ())
    nearest = min(ours, key=lambda one: (gpu.name not in one.gpus, _distance(one.generation, generation)))
    if nearest.engine == engine and gpu.name in nearest.gpus:
        return nearest
    return replace(
        nearest,
        parameters=rebalanced(nearest, gpu),
        provenance=ASSUMED,
        tpot_error_ratio=WIDER * nearest.tpot_error_ratio,
        ttft_error_ratio=WIDER * nearest.ttft_error_ratio,
        source=f"{engine} on {gpu.name} was not measured; taken from the nearest measured family, {nearest.engine} on "
        f"{nearest.generation} ({', '.join(nearest.gpus)}): {nearest.source}",
    )


def rebalanced(calibration: Calibration, gpu: Gpu) -> StepParameters:
    """Parameters of `calibration` on a `gpu` it did not measure, the share of peak that products reach carried over.

    A product's tiles reuse what they read a limited number of times: F FLOPs take F/peak + F/(reuse × bandwidth), so
    a GPU with less compute for its bandwidth comes nearer to its peak.
    """
    if calibration.balance_flop_per_byte is None:
        return calibration.parameters
    balance = gpu.peak(widened("bf16", gpu)) / gpu.bandwidth_bytes_per_s
    harder = balance / calibration.balance_flop_per_byte
    values = {name: getattr(calibration.parameters, name) for name in PRODUCT_RATIOS}
    return replace(
        calibration.parameters, **{name: 1 / (1 + harder * (1 / value - 1)) for name, value in values.items()}
    )


def _distance(one: str, other: str) -> int:
    places = [_ORDER.index(name) if name in _ORDER else len(_ORDER) for name in (one, other)]
    return abs(places[0] - places[1])
