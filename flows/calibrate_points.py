"""Fits the catalog's calibrations to a file of measured benchmark points, and says how well, in the file itself."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flows.calibrations import parameter_table, rounded, write_calibrations
from flows.points import Placing, read_points, whole_or_nan
from transforms.errors import ConfigError, InputError, KvledgerError
from transforms.planner.provenance import CALIBRATED
from transforms.planner.steps.calibration_choice import generation_of
from transforms.planner.steps.calibration_errors import Times, by_kind, errors
from transforms.planner.steps.calibration_fit import broken_floors, evidence, fitted, left_out, times_s
from transforms.planner.steps.calibration_prior import bound
from transforms.planner.steps.step_calibration import StepParameters
from transforms.planner.steps.step_work import widened

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from flows.catalog import Catalog
    from transforms.planner.steps.calibration_fit import Evidence
    from transforms.planner.steps.points import Placed, Point

MEASURED = ("ttft_ms", "tpot_ms")
FEWEST_POINTS = 10
"""Fewer points than this are no fit."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Points of a file that could be placed, with their measured times; and why others could not."""

    points: list[tuple[Point, Placed]]
    models: list[str]
    """Of each point, the first config file with the same facts: one model may go by several names."""
    seen: Evidence
    read: int
    refused: dict[str, int]
    balances: NDArray[np.float64]
    """Peak in 16 bits over bandwidth of each point's GPU, FLOP per byte."""


def calibrate_points(path: Path, configs: Path, output: Path, source: str | None, catalog: Catalog) -> dict[str, Any]:
    """Fit of the points in the CSV at `path`, written to `output` as TOML; the same as the command prints.

    InputError where columns are missing or too few points can be used.
    """
    if not configs.is_dir():
        raise ConfigError(f"--configs {configs} is not a folder; name the one with the points' config files")
    measured = read_measured(path, configs, catalog)
    seen = measured.seen
    token_ratios, first_ratios = broken_floors(seen)
    possible = (token_ratios >= 1) & (first_ratios >= 1)
    values = fitted(seen.at(possible))
    fit = Times(*times_s(seen, values), seen.ttft_s, seen.tpot_s)
    groups = np.array([f"{m} on {p.gpu}" for m, (p, _) in zip(measured.models, measured.points, strict=True)])
    apart = Times(*left_out(seen, values, groups, possible), seen.ttft_s, seen.tpot_s)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    document = {
        "source": source or f"kvledger calibrate --points {path.name}",
        "points_sha256": digest,
        "provenance": CALIBRATED,
        "read_points": measured.read,
        "fitted_points": int(possible.sum()),
        "refused_points": sum(measured.refused.values()),
        "errors": {"fit": by_kind(fit, seen), "left_out": by_kind(apart, seen)},
        "refused": [{"reason": reason, "points": count} for reason, count in measured.refused.items()],
        "broken_floors": _broken(measured, token_ratios, first_ratios),
        "families": _families(measured, values, fit, apart),
        "groups": _groups(measured, fit, apart),
    }
    write_calibrations({key: value for key, value in document.items() if value != []}, output)
    return document | {"output": str(output)}


def read_measured(path: Path, configs: Path, catalog: Catalog) -> Measured:
    """Points and measured times of the CSV at `path`."""
    rows, placing = read_points(path, MEASURED), Placing(catalog, configs)
    points, times, gpus, names, refused = [], [], [], [], Counter[str]()
    first_names: dict[str, str] = {}
    for row in rows:
        first_ms, token_ms = (whole_or_nan(row, name) for name in MEASURED)
        try:
            if not first_ms > 0 < token_ms:
                raise InputError("ttft_ms and tpot_ms must be numbers above zero")
            point, placed, gpu = placing.placed(row)
        except KvledgerError as error:
            refused[" ".join(str(error).split())] += 1
            continue
        points.append((point, placed))
        times.append((first_ms / 1000, token_ms / 1000))
        gpus.append(gpu)
        names.append(first_names.setdefault(facts(configs / f"{point.config_file}.json"), point.config_file))
    if len(points) < FEWEST_POINTS:
        raise InputError(f"{path}: {len(points)} points can be used, {FEWEST_POINTS} are the fewest for a fit")
    seen = evidence(points, times, [generation_of(gpu) for gpu in gpus])
    balances = np.array([gpu.peak(widened("bf16", gpu)) / gpu.bandwidth_bytes_per_s for gpu in gpus])
    return Measured(points, names, seen, len(rows), dict(refused.most_common()), balances)


def facts(path: Path) -> str:
    """Facts of the config at `path` as one text, its source left out."""
    document = json.loads(path.read_bytes())
    return json.dumps({key: value for key, value in document.items() if not key.endswith("source")}, sort_keys=True)


def _broken(
    measured: Measured, token_ratios: NDArray[np.float64], first_ratios: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Points faster than the hardware can be: never fitted."""
    return [
        {"id": point.point_id, "floor": floor, "measured_over_floor_factor": rounded(ratio)}
        for (point, _), token, first in zip(measured.points, token_ratios, first_ratios, strict=True)
        for floor, ratio in (("tpot: weights at full bandwidth", token), ("ttft: prompt at full peak", first))
        if ratio < 1
    ]


def _families(measured: Measured, values: NDArray[np.float64], fit: Times, apart: Times) -> list[dict[str, Any]]:
    seen, parameters = measured.seen, bound(values)
    rows = []
    for at, (engine, generation) in enumerate(seen.families):
        own = seen.family == at
        gpus = sorted({point.gpu for (point, _), is_own in zip(measured.points, own, strict=True) if is_own})
        made = StepParameters(**{name: float(column[at]) for name, column in parameters.items()})
        rows.append(
            {
                "engine": engine,
                "generation": generation,
                "gpus": gpus,
                "balance_flop_per_byte": float(np.mean(measured.balances[own])),
                "points": int(own.sum()),
                "parameters": parameter_table(made),
                "fit_errors": errors(fit.at(own)),
                "left_out_errors": errors(apart.at(own)),
            }
        )
    return rows


def _groups(measured: Measured, fit: Times, apart: Times) -> list[dict[str, Any]]:
    """A row for each engine, GPU, model and weight dtype: predicted against measured."""
    keys = [
        (point.engine, point.gpu, model, point.weights)
        for model, (point, _) in zip(measured.models, measured.points, strict=True)
    ]
    rows: list[dict[str, Any]] = []
    for key in sorted(set(keys)):
        own = np.array([one == key for one in keys])
        named: Mapping[str, Any] = dict(zip(("engine", "gpu", "model", "weights"), key, strict=True))
        fit_errors, apart_errors = errors(fit.at(own)), errors(apart.at(own))
        rows.append({**named, "points": int(own.sum()), "fit": fit_errors, "left_out": apart_errors})
    return rows
