"""The step-time model of a real model on a real GPU: facts of the catalog, refusals, public runs it must be near."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from flows.catalog import load_catalog
from transforms.catalog import Gpu
from transforms.errors import CatalogError
from transforms.fleet import Engine
from transforms.planner.hardware import ASSUMED, compute_dtype, step_model
from transforms.planner.kv_account import kv_account
from transforms.planner.model_shape import model_shape
from transforms.planner.step_time import Batch, StepModel, prefill_s, step_floor_s, step_s

CATALOG = load_catalog(None)
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def built(config: Any, gpu: Gpu, **engine: Any) -> StepModel:
    made = Engine(**engine)
    account = kv_account(model_shape(config, "config.json"), made, 1 << 36)
    return step_model(config, "config.json", gpu, made, kv_token_bytes=account.bytes_per_token)


def llama(**engine: Any) -> StepModel:
    return built(CATALOG.model(LLAMA_8B).config, CATALOG.gpu("H100-SXM-80GB"), **engine)


def test_llama_8b_on_one_h100() -> None:
    model = llama()
    assert model.token_flop / 2 == pytest.approx(6.98e9, rel=2e-3)
    assert model.sampled_flop / 2 == pytest.approx(128_256 * 4096, rel=2e-3)
    assert model.pair_flop == 4 * 32 * 32 * 128
    assert model.weight_bytes == pytest.approx(16.06e9 - 2 * 128_256 * 4096, rel=2e-3)
    assert model.kv_token_bytes == 131_072
    assert model.token_collective_s == 0
    assert step_floor_s(model) == pytest.approx(model.weight_bytes / 3.35e12)
    assert model.provenance == "assumed"


def test_tensor_parallelism_shares_work_and_pays_collectives() -> None:
    one, four = llama(), llama(tensor_parallel_size=4)
    assert four.flop_per_s == 4 * one.flop_per_s
    assert four.bytes_per_s == 4 * one.bytes_per_s
    assert four.token_collective_s > 0
    assert four.step_overhead_s > one.step_overhead_s
    assert step_s(four, 0, 1, 1000) < step_s(one, 0, 1, 1000)


@pytest.mark.parametrize("key", ["pipeline_parallel_size", "data_parallel_size"])
def test_other_parallelism_is_refused_by_name(key: str) -> None:
    with pytest.raises(CatalogError, match=f"not for {key} = 2"):
        llama(**{key: 2})


def test_a_gpu_without_a_link_cannot_be_split_over() -> None:
    alone = dataclasses.replace(CATALOG.gpu("H100-SXM-80GB"), link_bytes_per_s=None)
    config = CATALOG.model(LLAMA_8B).config
    built(config, alone)
    with pytest.raises(CatalogError, match=r"no \[link\]"):
        built(config, alone, tensor_parallel_size=2)


def test_quantised_weights_compute_in_their_own_dtype_where_the_gpu_can() -> None:
    assert [compute_dtype(name) for name in ("none", "fp8", "gptq-int4", "nvfp4")] == ["bf16", "fp8", "bf16", "fp4"]
    config = dict(CATALOG.model(LLAMA_8B).config) | {"quantization_config": {"quant_method": "fp8"}}
    gpu = CATALOG.gpu("H100-SXM-80GB")
    plain, fp8 = llama(), built(config, gpu)
    assert fp8.peak_flop_per_s == pytest.approx(2 * plain.peak_flop_per_s, rel=1e-3)
    assert fp8.weight_bytes < 0.6 * plain.weight_bytes
    ampere = dataclasses.replace(gpu, peak_flop_per_s={"bf16": 312e12})
    assert built(config, ampere).peak_flop_per_s == 312e12


@pytest.mark.shared
def test_assumed_efficiencies_are_near_public_runs(shared_dir: Path) -> None:
    """What their docstring claims: time per output token of dense models on H100 within 10 % in the median."""
    folder = shared_dir / "cases/steptime"
    errors = []
    with (folder / "measured.csv").open(encoding="utf-8") as lines:
        for run in csv.DictReader(lines):
            is_dense = run["model"].endswith(("Qwen3-32B", "Llama-3.1-70B")) and run["weights"] in ("bf16", "fp8")
            if run["engine"] != "vllm" or run["gpu"] != "H100-SXM-80GB" or not is_dense:
                continue
            config = json.loads((folder / f"configs/{run['config_file']}.json").read_text(encoding="utf-8"))
            if run["weights"] == "fp8":
                config |= {"quantization_config": {"quant_method": "fp8"}}
            model = built(config, CATALOG.gpu(run["gpu"]), tensor_parallel_size=int(run["tp"]))
            batch, prompt, output = (int(run[name]) for name in ("concurrency", "isl", "osl"))
            token_s = step_s(model, 0, batch, prompt + output / 2)
            token_s += prefill_s(model, prompt, 0, Batch(8192, 0, 0)) * batch / output
            errors.append(abs(1000 * token_s / float(run["tpot_ms"]) - 1))
    assert len(errors) > 100
    assert median(errors) < 0.10
    assert ASSUMED.provenance == "assumed"
