"""A deployment's own calibration as a document: what was fitted, how far off it is, and what it holds for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from transforms.errors import ConfigError
from transforms.planner.replay.replay_costs import ReplayParameters
from transforms.planner.steps.parameter_space import USUAL_MIXED, carried_over, merged_overheads
from transforms.planner.steps.step_calibration import parse_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transforms.fleet import Engine
    from transforms.planner.replay.replay_fit import Fit
    from transforms.planner.steps.step_work import StepWork

WORK = ("token_flop", "sampled_flop", "weight_bytes", "expert_bytes", "kv_token_bytes")
"""Facts of a model's step: two configs with the same are the same model to a calibration, whatever they are called."""
ROUNDED = 1e-4
SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def identity(model_id: str, gpu: str, engine: Engine, work: StepWork) -> dict[str, Any]:
    """What a calibration holds for: names, sizes, and the work of a step."""
    return {
        "model": model_id,
        "gpu": gpu,
        "engine": engine.name,
        **{name: getattr(engine, name) for name in SIZES},
        "work": {name: float(getattr(work, name)) for name in WORK},
    }


def fit_document(fit: Fit) -> dict[str, Any]:
    """The fit's own part of the document: counts, errors on the requests held out, which parameters were fitted."""
    return {
        "provenance": "calibrated",
        "fit_requests": fit.fit_requests,
        "holdout_requests": fit.holdout_requests,
        "batch_low_requests": fit.batch_low_requests,
        "batch_high_requests": fit.batch_high_requests,
        "fitted": list(fit.fitted),
        "holdout_error_ratio": {k: v for k, v in fit.holdout_error_ratio.items() if v is not None},
        "replay": {"mixed_context_factor": fit.parameters.mixed_context_factor},
    }


def parse_own(document: Mapping[str, Any], where: str, wanted: Mapping[str, Any]) -> ReplayParameters:
    """Parameters of a calibration `document`; ConfigError where it is none, or of another model, GPU or layout."""
    _check_kind(document, where)
    for name in ("gpu", "engine", *SIZES):
        if document.get(name) != wanted[name]:
            raise ConfigError(_other(document, where, wanted, name))
    for name in WORK:
        found = document["work"].get(name)
        if not isinstance(found, int | float) or not math.isclose(found, wanted["work"][name], rel_tol=ROUNDED):
            raise ConfigError(_other(document, where, wanted, "model"))
    return _parameters(document, where)


def parse_carried(document: Mapping[str, Any], where: str, start: ReplayParameters, work: StepWork) -> ReplayParameters:
    """Parameters for another GPU, whose catalog values are `start`, from a calibration `document` of any."""
    _check_kind(document, where)
    from_start = ReplayParameters(parse_parameters(document.get("start_parameters"), where), USUAL_MIXED)
    names = tuple(map(str, document.get("fitted", ())))
    return carried_over(_parameters(document, where), from_start, merged_overheads(start, work), names)


def _check_kind(document: Mapping[str, Any], where: str) -> None:
    if not all(isinstance(document.get(name), dict) for name in ("work", "replay")):
        raise ConfigError(f"{where}: no calibration of a deployment; kvledger calibrate RESULTS --output makes one")


def _parameters(document: Mapping[str, Any], where: str) -> ReplayParameters:
    factor = document["replay"].get("mixed_context_factor")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not factor >= 0:
        raise ConfigError(f"{where}: mixed_context_factor must be a number of 0 or more, not {factor!r}")
    return ReplayParameters(parse_parameters(document.get("parameters"), where), float(factor))


def _other(document: Mapping[str, Any], where: str, wanted: Mapping[str, Any], name: str) -> str:
    return (
        f"{where}: is a calibration of {name} {document.get(name)}, not of {wanted[name]}; "
        "calibrate on runs of this deployment, or carry it over with --set carry_calibration=true"
    )
