"""Fits the parameters of step-time calibrations to measured benchmark points, and says how well on points left out.

scipy's trust region with Gauss–Newton curvature, on the logarithms of predicted over measured times, with a loss that
grows slower than the square (public runs hold mistakes and unrecorded settings) and the prior of calibration_prior.py.
Nothing is drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from transforms.planner.steps.calibration_prior import MEANS, NAMES, bound, precisions
from transforms.planner.steps.closed_loop import Load, steady
from transforms.planner.steps.step_calibration import StepParameters, calibrated
from transforms.planner.steps.step_time import step_floor_s, ttft_floor_s
from transforms.planner.steps.step_work import StepWork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from transforms.planner.steps.points import Placed, Point

    Reals = NDArray[np.float64]

SCALES = np.array([0.06, 0.22])[:, None]
"""Errors of a time per output token and of a first token that count as ordinary: repeated runs differ by 5–10 %."""
TAIL = 2.0
"""Degrees of freedom of the loss (Student's t): smaller forgets outliers sooner."""
STEPS, GRADIENT = 25, 0.1
"""A search ends after so many steps, or where the cost (some thousands) changes so little with a parameter."""
_DIFFERENCE = 1e-4


@dataclass(frozen=True, eq=False)
class Evidence:
    """Measured points as arrays, one element a point."""

    work: StepWork
    load: Load[Reals]
    ttft_s: Reals
    tpot_s: Reals
    family: NDArray[np.intp]
    """Index into `families`."""
    families: list[tuple[str, str]]
    """(engine, generation)."""

    def at(self, chosen: NDArray[np.bool_]) -> Evidence:
        """The points where `chosen` holds."""
        return Evidence(
            work=StepWork(**{f.name: _chosen(getattr(self.work, f.name), chosen) for f in fields(StepWork)}),
            load=Load(**{f.name: getattr(self.load, f.name)[chosen] for f in fields(Load)}),
            ttft_s=self.ttft_s[chosen],
            tpot_s=self.tpot_s[chosen],
            family=self.family[chosen],
            families=self.families,
        )


def evidence(
    points: Sequence[tuple[Point, Placed]], measured_s: Sequence[tuple[float, float]], generations: Sequence[str]
) -> Evidence:
    """Arrays of `points` with their measured (TTFT, TPOT) in seconds and the generation of their GPUs."""
    names = [(point.engine, generation) for (point, _), generation in zip(points, generations, strict=True)]
    families = sorted(set(names))
    works = [placed.work for _, placed in points]
    stacked = {f.name: _stacked([getattr(work, f.name) for work in works]) for f in fields(StepWork)}
    loads = [
        (
            placed.reading.concurrency,
            placed.resident,
            point.prompt_tokens,
            point.output_tokens,
            placed.reading.layout.data > 1,
        )
        for point, placed in points
    ]
    times = np.array(measured_s, dtype=float)
    return Evidence(
        work=StepWork(**stacked),
        load=Load(*np.array(loads, dtype=float).T),
        ttft_s=times[:, 0],
        tpot_s=times[:, 1],
        family=np.array([families.index(name) for name in names]),
        families=families,
    )


def broken_floors(seen: Evidence) -> tuple[Reals, Reals]:
    """Measured over least possible time per output token and to the first token, each point; below 1 is impossible."""
    plain = calibrated(seen.work, StepParameters(), "assumed")
    asked = plain.expert_bytes * (1 - plain.unasked_ratio**seen.load.resident)
    step_s = np.maximum((plain.weight_bytes + asked) / plain.peak_bytes_per_s, step_floor_s(plain))
    return seen.tpot_s / step_s, seen.ttft_s / ttft_floor_s(plain, seen.load.prompt_tokens, 0.0)  # type: ignore[arg-type]


def fitted(seen: Evidence, start: Reals | None = None) -> Reals:
    """Parameters on the free scale (families × parameters) that fit `seen` best; `start` is where to begin."""
    from scipy.optimize import minimize

    drawn = precisions(seen.families)
    shape = (len(seen.families), len(NAMES))

    def cost(free: Reals) -> float:
        values = free.reshape(shape)
        return _cost(_residuals(seen, values), values, drawn)

    @lru_cache(maxsize=1)
    def equations(free: bytes) -> tuple[Reals, Reals]:
        values = np.frombuffer(free).reshape(shape)
        return _normal_equations(seen, values, _residuals(seen, values), drawn)

    found = minimize(
        cost,
        (np.tile(MEANS, (shape[0], 1)) if start is None else start).ravel(),
        method="trust-exact",
        jac=lambda free: 2 * equations(free.tobytes())[1],
        hess=lambda free: 2 * equations(free.tobytes())[0],
        options={"gtol": GRADIENT, "maxiter": STEPS},
    )
    return np.asarray(found.x.reshape(shape))


def times_s(seen: Evidence, values: Reals) -> tuple[Reals, Reals]:
    """Predicted time to first token and per output token of each point, in seconds."""
    rows: dict[str, Any] = {name: column[seen.family] for name, column in bound(values).items()}
    parameters = StepParameters(**rows)
    model = calibrated(seen.work, parameters, "calibrated")
    found = steady(model, parameters, seen.load, largest=np.maximum, ceiling=np.ceil)
    return found.ttft_s, found.tpot_s


def left_out(seen: Evidence, values: Reals, groups: NDArray[np.str_], fit_on: NDArray[np.bool_]) -> tuple[Reals, Reals]:
    """As `times_s`, each of `groups` by a fit that did not see it; points outside `fit_on` are in no fit."""
    first_s, token_s = np.zeros_like(seen.ttft_s), np.zeros_like(seen.tpot_s)
    for name in np.unique(groups):
        own = groups == name
        without = fitted(seen.at(fit_on & ~own), values)
        first_s[own], token_s[own] = times_s(seen.at(own), without)
    return first_s, token_s


def _residuals(seen: Evidence, values: Reals) -> Reals:
    """Errors in units of SCALES, [time per output token, first token] × points."""
    first_s, token_s = times_s(seen, values)
    logs: Reals = np.stack([np.log(token_s / seen.tpot_s), np.log(first_s / seen.ttft_s)]) / SCALES
    return logs


def _cost(residuals: Reals, values: Reals, drawn: Reals) -> float:
    apart = values - MEANS
    prior = np.einsum("fp,pfg,gp->", apart, drawn, apart)
    return float(TAIL * np.log1p(residuals**2 / TAIL).sum() + prior)


def _normal_equations(seen: Evidence, values: Reals, residuals: Reals, drawn: Reals) -> tuple[Reals, Reals]:
    """Gauss–Newton matrix and slope over (family, parameter), flat; a point depends on its own family alone."""
    count = len(NAMES)
    slopes = np.empty((count, *residuals.shape))
    for at in range(count):
        moved = values.copy()
        moved[:, at] += _DIFFERENCE
        slopes[at] = (_residuals(seen, moved) - residuals) / _DIFFERENCE
    trust = 1 / (1 + residuals**2 / TAIL)
    families = len(values)
    matrix, slope = np.zeros((families, count, families, count)), np.zeros((families, count))
    for family in range(families):
        own = seen.family == family
        local, weights = slopes[:, :, own].reshape(count, -1), trust[:, own].reshape(-1)
        matrix[family, :, family, :] = (local * weights) @ local.T
        slope[family] = (local * weights) @ residuals[:, own].reshape(-1)
    for at in range(count):
        matrix[:, at, :, at] += drawn[at]
        slope[:, at] += drawn[at] @ (values[:, at] - MEANS[at])
    return matrix.reshape(families * count, -1), slope.reshape(-1)


def _stacked(values: list[Any]) -> Any:
    return values[0] if isinstance(values[0], str) else np.array(values, dtype=float)


def _chosen(value: Any, chosen: NDArray[np.bool_]) -> Any:
    return value if isinstance(value, str) else value[chosen]
