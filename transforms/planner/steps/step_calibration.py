"""How far engines stay below the data sheet: the parameters of a calibration, and the step-time model they make.

No parameter belongs to a model. Ratios are of the data sheet's figure, passes are reads and writes of what goes through
a layer, overheads are seconds. The formulas take floats or arrays alike: a fit evaluates all points at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError, nearest
from transforms.planner.provenance import ASSUMED, FROM_STRONGEST
from transforms.planner.steps.step_time import StepModel

if TYPE_CHECKING:
    from transforms.planner.steps.step_work import StepWork


@dataclass(frozen=True)
class StepParameters:
    """What a calibration fits; the defaults are where a fit starts and what it is drawn to."""

    weight_bandwidth_ratio: float = 0.7
    expert_bandwidth_ratio: float = 0.7
    kv_bandwidth_ratio: float = 0.85
    bf16_gemm_ratio: float = 0.58
    fp8_gemm_ratio: float = 0.35
    fp4_gemm_ratio: float = 0.37
    bf16_expert_ratio: float = 0.2
    fp8_expert_ratio: float = 0.17
    fp4_expert_ratio: float = 0.11
    attention_ratio: float = 0.3
    link_ratio: float = 0.35
    collective_s: float = 4.3e-6
    """Latency of one collective between two ranks; it grows with the logarithm of their number."""
    activation_passes: float = 3.0
    """Reads and writes of the inner widths of matrix products outside the routed experts."""
    dispatch_passes: float = 4.0
    """Reads and writes of the hidden state for each routed expert a token asks for."""
    step_overhead_s: float = 2.0e-4
    kernel_overhead_s: float = 3.4e-6
    expert_overhead_s: float = 1.7e-5
    """Of a layer with routed experts: choosing them, sorting tokens by them, gathering what they give."""
    sequence_overhead_s: float = 8.0e-6
    first_token_s: float = 1.8e-2
    """Front end, tokenisation and the first kernels outside a graph: once a request."""
    first_token_steps: float = 3.0
    """Steps a request waits for its place and for the answer of its first step."""
    data_rank_steps: float = 2.0
    """Further such steps where attention is data parallel and ranks wait for each other."""
    burst_ratio: float = 0.09
    """Share of the other requests in flight whose prefill a request waits for, as arrivals come in bursts."""


RATIOS = tuple(f.name for f in fields(StepParameters) if f.name.endswith("_ratio"))
"""Parameters that are a share, 0 … 1: of the data sheet, so that no prediction is faster than it, or of requests."""

PRODUCT_RATIOS = tuple(name for name in RATIOS if name.endswith(("gemm_ratio", "expert_ratio", "attention_ratio")))
"""Shares of peak compute that products reach."""


@dataclass(frozen=True)
class Calibration:
    """Parameters of one engine on one generation of GPUs, and how far to trust them."""

    engine: str
    generation: str
    gpus: tuple[str, ...]
    """GPUs that were measured."""
    balance_flop_per_byte: float | None = None
    """Their peak in 16 bits over their bandwidth, mean; None where nothing was measured."""
    parameters: StepParameters = field(default_factory=StepParameters)
    mixed_context_factor: float = 0.0
    """What a deployment's own calibration found for the replay's steps that prefill beside decoding sequences."""
    tpot_error_ratio: float = 0.5
    """Median error of the time per output token on (model, GPU) groups left out of the fit."""
    ttft_error_ratio: float = 0.5
    provenance: str = ASSUMED
    source: str = "starting values of a fit, after public vLLM runs (benchmark sample of aiconfigurator 0.12.0)"


def calibrated(work: StepWork, parameters: StepParameters, provenance: str, drafts: int = 0) -> StepModel:
    """Step-time model of `work` at these efficiencies; with arrays as fields, one model of many points."""
    token_s = (
        work.gemm_bf16_s / parameters.bf16_gemm_ratio
        + work.gemm_fp8_s / parameters.fp8_gemm_ratio
        + work.gemm_fp4_s / parameters.fp4_gemm_ratio
        + work.expert_bf16_s / parameters.bf16_expert_ratio
        + work.expert_fp8_s / parameters.fp8_expert_ratio
        + work.expert_fp4_s / parameters.fp4_expert_ratio
        + work.window_s / parameters.attention_ratio
    )
    moved_s = work.activation_s * parameters.activation_passes + work.dispatch_s * parameters.dispatch_passes
    overhead_s = parameters.step_overhead_s + launch_s(work, parameters)
    return StepModel(
        token_flop=work.token_flop,
        sampled_flop=work.sampled_flop,
        pair_flop=work.pair_flop,
        weight_bytes=work.weight_bytes,
        kv_token_bytes=work.kv_token_bytes,
        flop_per_s=work.token_flop / token_s,
        bytes_per_s=work.bandwidth_bytes_per_s * parameters.weight_bandwidth_ratio,
        peak_flop_per_s=work.peak_flop_per_s,
        peak_bytes_per_s=work.peak_bytes_per_s,
        token_collective_s=work.link_s / parameters.link_ratio + moved_s,
        step_overhead_s=overhead_s + parameters.collective_s * work.collectives,
        sequence_overhead_s=parameters.sequence_overhead_s * work.sequence_share,
        speculative_tokens=drafts,
        provenance=provenance,
        sampled_s=work.sampled_s / parameters.bf16_gemm_ratio,
        pair_s=work.pair_s / parameters.attention_ratio,
        prefill_pair_ratio=work.prefill_pair_ratio,
        context_s=work.kv_token_bytes / (work.bandwidth_bytes_per_s * parameters.kv_bandwidth_ratio),
        sequence_s=work.sequence_bytes / (work.bandwidth_bytes_per_s * parameters.kv_bandwidth_ratio),
        experts=work.experts,
        experts_per_token=work.experts_per_token,
        expert_bytes=work.expert_bytes,
        expert_s=work.expert_bytes / (work.bandwidth_bytes_per_s * parameters.expert_bandwidth_ratio),
    )


def launch_s(work: StepWork, parameters: StepParameters) -> Any:
    """Seconds of a step that grow with the model's layers alone: kernels, and the handling of routed experts."""
    return parameters.kernel_overhead_s * work.kernels + parameters.expert_overhead_s * work.sparse_layers


def parse_calibrations(document: Mapping[str, Any], where: str) -> tuple[Calibration, ...]:
    """Calibrations of a decoded TOML document: its `[[families]]`; CatalogError names what is amiss."""
    families = document.get("families")
    if not isinstance(families, list) or not families:
        raise CatalogError(f"{where}: has no [[families]]; write it with kvledger calibrate --points")
    return tuple(_family(family, document, where) for family in families)


def _family(table: Any, document: Mapping[str, Any], where: str) -> Calibration:
    if not isinstance(table, Mapping):
        raise CatalogError(f"{where}: each of [[families]] must be a table")
    errors = table.get("left_out_errors", {})
    provenance = str(document.get("provenance", ASSUMED))
    if provenance not in FROM_STRONGEST:
        raise CatalogError(f"{where}: provenance '{provenance}' must be one of {', '.join(FROM_STRONGEST)}")
    return Calibration(
        engine=str(table.get("engine", "")),
        generation=str(table.get("generation", "")),
        gpus=tuple(map(str, table.get("gpus", ()))),
        balance_flop_per_byte=table.get("balance_flop_per_byte"),
        parameters=parse_parameters(table.get("parameters"), where),
        tpot_error_ratio=float(errors.get("tpot_median_ratio", Calibration.tpot_error_ratio)),
        ttft_error_ratio=float(errors.get("ttft_median_ratio", Calibration.ttft_error_ratio)),
        provenance=provenance,
        source=str(document.get("source", where)),
    )


def parse_parameters(table: Any, where: str) -> StepParameters:
    """Parameters in a decoded TOML table, all of them and nothing else; CatalogError names the first that is amiss."""
    known = [f.name for f in fields(StepParameters)]
    if not isinstance(table, Mapping):
        raise CatalogError(f"{where}: [parameters] is missing; it holds {', '.join(known)}")
    for name in table:
        if name not in known:
            raise CatalogError(f"{where}: unknown parameter '{name}'{nearest(name, known)}")
    for name in known:
        value = table.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if not is_number or (name in RATIOS and not 0 < value <= 1):  # type: ignore[operator]
            bounds = "above 0 and at most 1" if name in RATIOS else "of 0 or more"
            raise CatalogError(f"{where}: parameter {name} must be a number {bounds}, not {value!r}")
    return StepParameters(**{name: float(table[name]) for name in known})
