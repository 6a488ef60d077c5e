"""Calibrations: which one holds for an engine and a GPU, what a file must say, a deployment's own before it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from flows.calibrations import deployment_calibration, load_calibrations, parameter_table, write_calibrations
from flows.catalog import load_catalog
from flows.deployments import place
from flows.fleet import LoadedFleet
from transforms.errors import CatalogError, ConfigError
from transforms.fleet import parse_fleet
from transforms.planner.replay.own_calibration import identity
from transforms.planner.steps.calibration_choice import WIDER, chosen, generation_of, rebalanced
from transforms.planner.steps.hardware import engine_work
from transforms.planner.steps.step_calibration import (
    PRODUCT_RATIOS,
    RATIOS,
    Calibration,
    StepParameters,
    parse_calibrations,
    parse_parameters,
)

CATALOG = load_catalog(None)
SHIPPED = load_calibrations(CATALOG)


@pytest.mark.parametrize(
    ("gpu", "generation"),
    [
        ("T4-16GB", "turing"), ("V100-SXM-32GB", "volta"), ("A100-SXM-80GB", "ampere"), ("RTX-4090-24GB", "ada"),
        ("H200-SXM-141GB", "hopper"), ("B300-SXM-270GB", "blackwell"), ("RTX-PRO-6000-96GB", "blackwell"),
        ("MI300X-192GB", "hopper"), ("MI355X-288GB", "blackwell"),
    ],
)  # fmt: skip
def test_generations_of_the_catalogs_gpus(gpu: str, generation: str) -> None:
    assert generation_of(CATALOG.gpu(gpu)) == generation


def test_a_measured_gpu_has_its_family_and_others_the_nearest_one() -> None:
    measured = chosen(SHIPPED, "sglang", CATALOG.gpu("H200-SXM-141GB"))
    assert (measured.engine, measured.generation, measured.provenance) == ("sglang", "hopper", "calibrated")
    nearest = chosen(SHIPPED, "sglang", CATALOG.gpu("A100-SXM-80GB"))
    assert (nearest.engine, nearest.generation, nearest.provenance) == ("sglang", "hopper", "assumed")
    assert nearest.tpot_error_ratio == WIDER * measured.tpot_error_ratio
    assert "sglang on A100-SXM-80GB was not measured" in nearest.source
    other = chosen(SHIPPED, "vllm-ascend", CATALOG.gpu("H100-SXM-80GB"))
    assert (other.engine, other.provenance) == ("vllm", "assumed")
    assert chosen((), "vllm", CATALOG.gpu("H100-SXM-80GB")).provenance == "assumed"


def test_a_gpu_with_less_compute_for_its_bandwidth_comes_nearer_to_its_peak() -> None:
    family = chosen(SHIPPED, "vllm", CATALOG.gpu("H100-SXM-80GB"))
    gpu = CATALOG.gpu("RTX-4090-24GB")
    carried = rebalanced(family, gpu)
    for name in PRODUCT_RATIOS:
        assert getattr(family.parameters, name) < getattr(carried, name) < 1
    same = dataclasses.replace(gpu, bandwidth_bytes_per_s=gpu.peak("bf16") / (family.balance_flop_per_byte or 1.0))
    assert rebalanced(family, same).bf16_gemm_ratio == pytest.approx(family.parameters.bf16_gemm_ratio)


@pytest.mark.parametrize("family", SHIPPED, ids=lambda one: f"{one.engine}-{one.generation}")
def test_no_ratio_beats_the_data_sheet(family: Calibration) -> None:
    assert all(0 < getattr(family.parameters, name) < 1 for name in RATIOS)
    assert family.gpus
    assert 0 < family.tpot_error_ratio < 0.3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"link_ratio": 1.2}, "link_ratio must be a number above 0 and at most 1, not 1.2"),
        ({"step_overhead_s": -1.0}, "step_overhead_s must be a number of 0 or more"),
        ({"link_ration": 0.5}, "unknown parameter 'link_ration'; did you mean 'link_ratio'"),
        ({"first_token_s": "soon"}, "first_token_s must be a number"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CatalogError, match=said):
        parse_parameters(parameter_table(StepParameters()) | change, "file.toml")


def test_a_file_without_families_is_no_calibration() -> None:
    with pytest.raises(CatalogError, match=r"file.toml: has no \[\[families\]\]"):
        parse_calibrations({"source": "nowhere"}, "file.toml")


def placed_with(calibration: str | None, base: Path) -> tuple[Any, LoadedFleet]:
    deployment = {"name": "llama", "serves": ["*"], "model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100-SXM-80GB"}
    document = {"deployments": [deployment | ({"calibration": calibration} if calibration else {})]}
    fleet = LoadedFleet(parse_fleet(document, "fleet.toml"), base / "fleet.toml", base, "0", is_example=False)
    return place(fleet.fleet.deployments[0], fleet, CATALOG), fleet


def test_the_catalogs_calibration_holds_where_a_deployment_names_none(tmp_path: Path) -> None:
    found = deployment_calibration(*placed_with(None, tmp_path), CATALOG)
    assert (found.engine, found.generation, found.provenance) == ("vllm", "hopper", "calibrated")
    assert "public serving benchmarks" in found.source


def test_a_deployments_own_calibration_comes_before_the_catalogs(tmp_path: Path) -> None:
    placed, _ = placed_with(None, tmp_path)
    engine = placed.deployment.engine
    work = engine_work(placed.model.config, placed.model.where, placed.gpu, engine)
    own = parameter_table(dataclasses.replace(StepParameters(), step_overhead_s=0.0125))
    document = identity(placed.model.model_id, placed.gpu.name, engine, work)
    document |= {"holdout_error_ratio": {"tpot_s": -0.01, "ttft_s": 0.02}, "replay": {"mixed_context_factor": 0.0}}
    write_calibrations(document | {"parameters": own}, tmp_path / "own.toml")
    found = deployment_calibration(*placed_with("own.toml", tmp_path), CATALOG)
    assert found.parameters.step_overhead_s == 0.0125
    assert (found.provenance, found.tpot_error_ratio, found.ttft_error_ratio) == ("calibrated", 0.01, 0.02)
    write_calibrations(document | {"parameters": own, "gpu": "A100-SXM-80GB"}, tmp_path / "own.toml")
    with pytest.raises(ConfigError, match="A100-SXM-80GB"):
        deployment_calibration(*placed_with("own.toml", tmp_path), CATALOG)
