"""The step-time model of a real model on a real GPU: facts of the catalog, refusals, public runs it must be near."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from flows.catalog import load_catalog
from transforms.catalog import Gpu
from transforms.errors import CatalogError
from transforms.fleet import Engine
from transforms.planner.replay.replay_costs import ReplayParameters, replay_costs
from transforms.planner.replay.step_costs import step_costs
from transforms.planner.steps.hardware import ASSUMED, engine_work, step_model
from transforms.planner.steps.step_time import StepModel, step_floor_s, step_s
from transforms.planner.steps.step_work import Layout, compute_dtype, step_work

CATALOG = load_catalog(None)
LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"


def built(config: Any, gpu: Gpu, **engine: Any) -> StepModel:
    return step_model(config, "config.json", gpu, Engine(**engine))


def llama(**engine: Any) -> StepModel:
    return built(CATALOG.model(LLAMA_8B).config, CATALOG.gpu("H100-SXM-80GB"), **engine)


def test_llama_8b_on_one_h100() -> None:
    model = llama()
    assert model.token_flop / 2 == pytest.approx(6.98e9, rel=2e-3)
    assert model.sampled_flop / 2 == pytest.approx(128_256 * 4096, rel=2e-3)
    assert model.pair_flop == 4 * 32 * 32 * 128
    assert model.weight_bytes == pytest.approx(16.06e9 - 2 * 128_256 * 4096, rel=2e-3)
    assert model.kv_token_bytes == 131_072
    assert 0 < model.token_collective_s < 0.15 * model.token_flop / model.flop_per_s  # inner widths through memory
    assert step_floor_s(model) == pytest.approx(model.weight_bytes / 3.35e12)
    assert model.provenance == "assumed"


def test_tensor_parallelism_shares_work_and_pays_collectives() -> None:
    one, four = llama(), llama(tensor_parallel_size=4)
    assert four.flop_per_s == 4 * one.flop_per_s
    assert four.bytes_per_s == 4 * one.bytes_per_s
    assert four.token_collective_s > one.token_collective_s
    assert four.step_overhead_s > one.step_overhead_s
    assert step_s(four, 0, 1, 1000) < step_s(one, 0, 1, 1000)


def test_pipeline_parallelism_is_refused_by_name() -> None:
    with pytest.raises(CatalogError, match=r"^config.json: [^\n]+ not for pipeline_parallel_size = 2; set it to 1"):
        llama(pipeline_parallel_size=2, data_parallel_size=2)


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_data_parallel_rank_of_a_dense_model_is_an_engine_alone(tensor: int) -> None:
    alone = llama(tensor_parallel_size=tensor)
    assert llama(tensor_parallel_size=tensor, data_parallel_size=4) == alone
    third = llama(tensor_parallel_size=tensor, data_parallel_size=3)
    assert step_s(third, 500, 20, 3000, 250) == pytest.approx(step_s(alone, 500, 20, 3000, 250), rel=1e-14)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_rank_with_experts_takes_the_steps_of_the_replay(parallel: bool) -> None:
    """DeepSeek on 8 ranks: attention of a rank's own tokens, experts of all; the very numbers of `kvledger replay`."""
    engine = Engine(data_parallel_size=8, enable_expert_parallel=parallel)
    config, gpu = CATALOG.model("deepseek-ai/DeepSeek-R1").config, CATALOG.gpu("H200-SXM-141GB")
    rank = step_model(config, "config.json", gpu, engine)
    work = engine_work(config, "config.json", gpu, engine)
    assert work.kv_token_bytes == rank.kv_token_bytes == 61 * (512 + 64) * 2  # one rank's, not a copy on each
    assert step_costs(rank) == replay_costs(work, ReplayParameters(ASSUMED.parameters), ranks=8)
    tensor = step_model(config, "config.json", gpu, dataclasses.replace(engine, tensor_parallel_size=8,
                                                                        data_parallel_size=1))  # fmt: skip
    assert rank.context_memory_s == pytest.approx(tensor.context_memory_s)  # 8 copies over 8 GPUs read no faster
    assert rank.flop_per_s < tensor.flop_per_s / 4
    assert 1 - rank.unasked_ratio == pytest.approx(1 - (1 - 8 / 256) ** 8)


def test_a_pipelines_stages_take_turns() -> None:
    """Each token passes all weights, read by one stage after the other; work is shared by all of them."""
    config, gpu = CATALOG.model(LLAMA_8B).config, CATALOG.gpu("H100-SXM-80GB")
    one, staged = (step_work(config, LLAMA_8B, gpu, Layout(1, stages)) for stages in (1, 2))
    assert staged.weight_bytes / staged.bandwidth_bytes_per_s == one.weight_bytes / one.bandwidth_bytes_per_s
    assert staged.gemm_bf16_s == pytest.approx(one.gemm_bf16_s / 2)
    assert staged.peak_bytes_per_s == 2 * one.peak_bytes_per_s


def test_a_gpu_without_a_link_cannot_be_split_over() -> None:
    alone = dataclasses.replace(CATALOG.gpu("H100-SXM-80GB"), link_bytes_per_s=None)
    config = CATALOG.model(LLAMA_8B).config
    built(config, alone)
    with pytest.raises(CatalogError, match=r"no \[link\][^\n]+; tensor_parallel_size 2, data_parallel_size 4 needs it"):
        built(config, alone, tensor_parallel_size=2, data_parallel_size=4)
    assert built(config, alone, data_parallel_size=4) == built(config, alone)  # dense ranks share nothing
    mixture = CATALOG.model("openai/gpt-oss-120b").config
    with pytest.raises(CatalogError, match="; data_parallel_size 4 needs it"):
        built(mixture, alone, data_parallel_size=4)


def test_quantised_weights_compute_in_their_own_dtype_where_the_gpu_can() -> None:
    assert [compute_dtype(name) for name in ("none", "fp8", "gptq-int4", "nvfp4")] == ["bf16", "fp8", "bf16", "fp4"]
    config = dict(CATALOG.model(LLAMA_8B).config) | {"quantization_config": {"quant_method": "fp8"}}
    gpu = CATALOG.gpu("H100-SXM-80GB")
    plain, fp8 = llama(), built(config, gpu)
    assert fp8.peak_flop_per_s == pytest.approx(2 * plain.peak_flop_per_s, rel=1e-3)
    assert fp8.weight_bytes < 0.6 * plain.weight_bytes
    ampere = dataclasses.replace(gpu, peak_flop_per_s={"bf16": 312e12})
    assert built(config, ampere).peak_flop_per_s == 312e12


def test_experts_are_read_as_tokens_ask_for_them() -> None:
    config = CATALOG.model("openai/gpt-oss-120b").config
    model = built(config, CATALOG.gpu("H100-SXM-80GB"), tensor_parallel_size=2)
    assert (model.experts, model.experts_per_token) == (128, 4)
    one, many = step_s(model, 0, 1, 100), step_s(model, 0, 128, 100)
    apart_s = model.expert_s * ((1 - (124 / 128) ** 128) - 4 / 128)
    per_request = model.sequence_overhead_s + model.token_collective_s + model.sequence_s + 100 * model.context_memory_s
    assert many - one == pytest.approx(apart_s + 127 * per_request, rel=1e-9)
    assert step_floor_s(model) < one


def test_latent_attention_reads_on_every_rank_what_it_caches() -> None:
    config = CATALOG.model("deepseek-ai/DeepSeek-R1").config
    model = built(config, CATALOG.gpu("H200-SXM-141GB"), tensor_parallel_size=8)
    assert model.kv_token_bytes == 8 * 61 * (512 + 64) * 2
    assert model.pair_flop == 61 * 2 * 128 * (2 * 512 + 64)
    assert model.prefill_pair_ratio == pytest.approx((128 + 64 + 128) / (2 * 512 + 64))


def test_windows_and_states_are_read_whatever_the_context() -> None:
    windowed = built(CATALOG.model("openai/gpt-oss-120b").config, CATALOG.gpu("H100-SXM-80GB"))
    assert windowed.kv_token_bytes == 18 * 2 * 8 * 64 * 2
    assert windowed.sequence_s == pytest.approx(128 * windowed.context_memory_s)  # as many layers have a window
    states = built(
        CATALOG.model("Qwen/Qwen3.5-397B-A17B").config, CATALOG.gpu("B200-SXM-180GB"), tensor_parallel_size=8
    )
    assert states.sequence_s > 0
    assert states.kv_token_bytes == 15 * 2 * 256 * 2 * 8  # each rank holds one of the two KV heads


def test_the_starting_values_are_assumed() -> None:
    assert ASSUMED.provenance == "assumed"
