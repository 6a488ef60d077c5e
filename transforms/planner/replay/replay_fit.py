"""Fits the step-time model to logged times by replaying the whole load and comparing what it shows with the log.

Half of the requests with times are fitted, every other one is held out. The search is Nelder and Mead's: replays are
not smooth in the parameters (a step's batch changes at once). Nothing is drawn at random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from transforms.errors import InputError
from transforms.planner.replay.engine import replay
from transforms.planner.replay.replay_costs import replay_costs
from transforms.planner.replay.replay_summary import latencies, measures
from transforms.planner.steps.parameter_space import MIXED, bound_to, free_of, merged_overheads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from transforms.planner.replay.replay_costs import ReplayParameters
    from transforms.planner.replay.replay_trace import ReplayTrace
    from transforms.planner.replay.replay_types import ReplayResult, Settings
    from transforms.planner.steps.step_work import StepWork

    Reals = NDArray[np.float64]
    Flags = NDArray[np.bool_]

FEWEST_REQUESTS = 40
"""With times; half of them are held out."""
LARGEST_ERROR_RATIO = 0.25
LEAST_SPREAD = 1.05
"""Batches of one size tell the cost of a step, not of a sequence: the 95 % quantile must be so much above the 5 %."""
ORDINARY = 0.15
"""Beyond this an error counts with its size, not its square."""
PRIOR = 2.0e-4
"""Pull of the catalog's values, against the mean square of the errors: it decides only what the log does not tell."""
WEIGHTS = {"tpot_s": 1.0, "e2e_s": 3.0, "ttft_s": 1.0, "prefill_s": 0.5}
MEASURES = ("ttft_s", "tpot_s", "e2e_s")
FIRST_STEPS = (1.0, -0.7, 0.4, -0.2)
"""Size of the simplex at each start, from the best point so far: a simplex can collapse short of the minimum. Wide at
first, so that where it ends does not hang on where it began: from two catalogs whose like errors differ in the digits,
on a measured run, 0.00517 and 0.00519 (0.4, -0.3, 0.2 ended at 0.0061 and 0.0065)."""
MOST_MOVES = 250
CLOSE_RATIO = 1.0e-5
"""A search ends when the losses at its corners are so close."""


@dataclass(frozen=True, eq=False)
class Run:
    """One log to fit to: its whole load, and the engine it ran on."""

    trace: ReplayTrace
    settings: Settings

    @property
    def measured(self) -> dict[str, Reals]:
        """Logged seconds of each request by measure; NaN where the log does not say."""
        return measures(self.trace.logged, self.trace.columns.output_tokens)


@dataclass(frozen=True)
class Fit:
    """Parameters, and how far off they are on the requests held out."""

    parameters: ReplayParameters
    fitted: tuple[str, ...]
    fit_requests: int
    holdout_requests: int
    holdout_error_ratio: dict[str, float | None]
    """Σ |replayed − logged| / Σ logged by measure; None where the log has none."""
    batch_low_requests: float
    """5 % quantile of the mean number of requests in flight while each one with times decoded."""
    batch_high_requests: float


def fitted(runs: Sequence[Run], work: StepWork, start: ReplayParameters, drafts: int = 0, ranks: int = 1) -> Fit:
    """Fit of the step-time model to `runs`, from `start`; InputError with the reason where it cannot be trusted."""
    evidence = [np.isfinite(run.measured["e2e_s"]) | np.isfinite(run.measured["ttft_s"]) for run in runs]
    _check_evidence(runs, evidence)
    halves = [_every_other(flags) for flags in evidence]
    start = merged_overheads(start, work)
    names = fitted_names(work)
    centre = free_of(start, names)

    def loss(free: Reals) -> float:
        costs = replay_costs(work, bound_to(free, names, start), drafts, ranks)
        results = [replay(run.trace.columns, run.settings, costs) for run in runs]
        off = [_loss(run, result, half) for run, result, half in zip(runs, results, halves, strict=True)]
        return float(np.mean(off) + PRIOR * ((free - centre) ** 2).sum())

    found = bound_to(_lowest(loss, centre), names, start)
    results = [replay(run.trace.columns, run.settings, replay_costs(work, found, drafts, ranks)) for run in runs]
    held = [flags & ~half for flags, half in zip(evidence, halves, strict=True)]
    batches = np.concatenate([_in_flight(result)[flags] for result, flags in zip(results, evidence, strict=True)])
    low, high = np.nanquantile(batches, [0.05, 0.95])
    fit = Fit(
        parameters=found,
        fitted=names,
        fit_requests=int(sum(half.sum() for half in halves)),
        holdout_requests=int(sum(flags.sum() for flags in held)),
        holdout_error_ratio={name: _error(runs, results, held, name) for name in MEASURES},
        batch_low_requests=float(low),
        batch_high_requests=float(high),
    )
    _check_fit(fit)
    return fit


def _lowest(loss: Callable[[Reals], float], start: Reals) -> Reals:
    """Point near `start` where `loss` is lowest, by restarted simplexes."""
    from scipy.optimize import minimize

    best = np.asarray(start)
    for step in FIRST_STEPS:
        simplex = np.stack([best, *(best + step * unit for unit in np.eye(len(best)))])
        ends = {"fatol": CLOSE_RATIO * loss(best), "xatol": np.inf, "maxiter": MOST_MOVES, "initial_simplex": simplex}
        best = minimize(loss, best, method="Nelder-Mead", options=ends | {"adaptive": True}).x
    return best


def fitted_names(work: StepWork) -> tuple[str, ...]:
    """Parameters that a log of this work can tell."""
    dtype = work.compute_dtype if work.compute_dtype in ("fp8", "fp4") else "bf16"
    names = ["weight_bandwidth_ratio", "kv_bandwidth_ratio", f"{dtype}_gemm_ratio", "step_overhead_s"]
    names += ["sequence_overhead_s", "activation_passes", MIXED]
    if work.experts_per_token > 0:
        names += ["expert_bandwidth_ratio", f"{dtype}_expert_ratio"]
    if work.link_s > 0:
        names.append("link_ratio")
    return tuple(names)


def _check_evidence(runs: Sequence[Run], evidence: Sequence[Flags]) -> None:
    count = int(sum(flags.sum() for flags in evidence))
    if count < FEWEST_REQUESTS:
        raise InputError(
            f"too few points: {count} requests have times, {FEWEST_REQUESTS} are the fewest for a fit (half held out)"
        )
    if not any(np.isfinite(run.measured["tpot_s"]).any() for run in runs):
        raise InputError("no request has a time to first token, an end and more than one output token: nothing to fit")


def _check_fit(fit: Fit) -> None:
    if fit.batch_high_requests < LEAST_SPREAD * fit.batch_low_requests:
        raise InputError(
            f"one regime only: {fit.batch_low_requests:.0f} to {fit.batch_high_requests:.0f} requests in flight "
            "throughout; add runs at other rates or concurrencies"
        )
    worst = {name: error for name, error in fit.holdout_error_ratio.items() if error and error > LARGEST_ERROR_RATIO}
    if worst:
        words = ", ".join(f"{name} {error:.0%}" for name, error in worst.items())
        raise InputError(
            f"the fit cannot be trusted: off by {words} on the requests held out (at most {LARGEST_ERROR_RATIO:.0%}); "
            "check model, GPU and engine settings, and that the log has all of the load"
        )


def _every_other(flags: Flags) -> Flags:
    chosen = np.zeros(len(flags), dtype=np.bool_)
    chosen[np.flatnonzero(flags)[::2]] = True
    return chosen


def _loss(run: Run, result: ReplayResult, chosen: Flags) -> float:
    """Weighted mean of the errors' loss over the chosen requests of one run."""
    measured, replayed = run.measured, latencies(result)
    total = 0.0
    for name, weight in WEIGHTS.items():
        told, shown = measured[name][chosen], replayed[name][chosen]
        is_known = np.isfinite(told) & (told > 0)
        if is_known.any():
            told, shown = told[is_known], np.nan_to_num(shown[is_known], nan=1e9)
            total += weight * float(_huber(_off(name, told, shown)).mean())
    return total


def _off(name: str, told: Reals, shown: Reals) -> Reals:
    """Relative errors; of times with a queue in them against no less than their mean, which chance moves less."""
    if name in ("ttft_s", "e2e_s"):
        return np.asarray((shown - told) / np.maximum(told, told.mean()))
    return np.asarray(np.log(np.maximum(shown, 1e-9) / told))


def _huber(off: Reals) -> Reals:
    size = np.abs(off)
    squared, linear = size**2 / 2, ORDINARY * (size - ORDINARY / 2)
    return np.asarray(np.where(size < ORDINARY, squared, linear))


def _error(runs: Sequence[Run], results: Sequence[ReplayResult], held: Sequence[Flags], name: str) -> float | None:
    told = np.concatenate([run.measured[name][flags] for run, flags in zip(runs, held, strict=True)])
    shown = np.concatenate([latencies(result)[name][flags] for result, flags in zip(results, held, strict=True)])
    is_known = np.isfinite(told) & np.isfinite(shown)
    return float(np.abs(shown - told)[is_known].sum() / told[is_known].sum()) if is_known.any() else None


def _in_flight(result: ReplayResult) -> Reals:
    """Mean number of requests running while each request decoded; NaN where it did not."""
    begun, ended = result.arrived_s + result.queue_s, result.arrived_s + result.e2e_s
    is_known = np.isfinite(begun) & np.isfinite(ended)
    span_s = result.e2e_s - result.ttft_s
    first = result.arrived_s + result.ttft_s
    held = _passed(begun[is_known], first + span_s) - _passed(begun[is_known], first)
    held -= _passed(ended[is_known], first + span_s) - _passed(ended[is_known], first)
    return np.where(span_s > 0, held / np.where(span_s > 0, span_s, 1.0), np.nan)


def _passed(events_s: Reals, at_s: Reals) -> Reals:
    """Σ of the seconds passed since those of the events that lie before each instant."""
    ordered = np.sort(events_s)
    count = np.searchsorted(ordered, at_s)
    return np.asarray(at_s * count - np.concatenate([[0.0], np.cumsum(ordered)])[count])
