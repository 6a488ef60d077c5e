"""Bytes of one layer on one GPU: heads over TP, dtypes, latents, indexers, states; pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from transforms.errors import CatalogError, ConfigError
from transforms.fleet import Engine
from transforms.planner.memory.kv_layers import check_parallelism, kv_format, pipeline_stages, state_bytes, token_bytes
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer, IndexerLayer, LatentLayer, ModelShape, model_shape

VERSION = (0, 33)
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
SPARSE = {"model_type": "glm_moe_dsa", "index_head_dim": 128, "index_topk": 2048, **LATENT}


def shape(**changes: Any) -> ModelShape:
    return model_shape(LLAMA | changes, "config.json")


def bytes_of(cache: Any, model: ModelShape, dtype: str = "auto", tp: int = 1) -> int:
    return token_bytes(cache, kv_format(model, Engine(kv_cache_dtype=dtype, tensor_parallel_size=tp), VERSION))


@pytest.mark.parametrize(("tp", "expected"), [(1, 4096), (2, 2048), (8, 512), (16, 512), (32, 512)])
def test_kv_heads_divide_over_tp_and_then_repeat(tp: int, expected: int) -> None:
    assert bytes_of(AttentionLayer(8, 128, 128), shape(), tp=tp) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("auto", 4096), ("bf16", 4096), ("bfloat16", 4096), ("fp16", 4096), ("float16", 4096), ("fp8", 2048),
     ("fp8_e4m3", 2048), ("fp8_e5m2", 2048), ("int8", 2048)],
)  # fmt: skip
def test_kv_dtype_is_apart_from_the_weights(dtype: str, expected: int) -> None:
    quantised = shape(quantization_config={"quant_method": "awq", "bits": 4}, torch_dtype="float32")
    assert bytes_of(AttentionLayer(8, 128, 128), quantised, dtype) == expected


def test_keys_and_values_of_different_dims() -> None:
    assert bytes_of(AttentionLayer(4, 192, 128), shape()) == 4 * (192 + 128) * 2


@pytest.mark.parametrize(("dtype", "expected"), [("auto", 1152), ("fp8", 576), ("fp8_ds_mla", 656)])
def test_a_latent_is_kept_once_on_every_rank(dtype: str, expected: int) -> None:
    model = shape(model_type="deepseek_v3", **LATENT)
    assert bytes_of(LatentLayer(512, 64), model, dtype) == expected
    assert bytes_of(LatentLayer(512, 64), model, dtype, tp=8) == expected


def test_sparse_attention_keeps_scales_and_an_index() -> None:
    model = shape(**SPARSE)
    assert bytes_of(LatentLayer(512, 64), model, "fp8") == 656
    assert bytes_of(IndexerLayer(128), model, "fp8", tp=8) == 132
    assert bytes_of(IndexerLayer(128), model) == 132


def test_glm_5_and_deepseek_v32_per_token() -> None:
    for layers, dtype, expected in ((78, "auto", 100_152), (61, "fp8", 48_068)):
        model = shape(num_hidden_layers=layers, **SPARSE)
        assert sum(bytes_of(c, model, dtype) for layer in model.layers for c in layer) == expected


GATED = StateLayer("gated delta net", 2 * 16 * 128 + 32 * 128, 3, 32 * 128 * 128, None)
MAMBA = StateLayer("Mamba-2", 7680, 3, 96 * 80 * 128, 2, conv_groups=8, conv_group_channels=256)


def state_of(state: StateLayer, version: tuple[int, int] = VERSION, family: str = "qwen3_next", **engine: Any) -> int:
    model = replace(shape(), family=family)
    return state_bytes(state, kv_format(model, Engine(**engine), version))


def test_state_of_a_gated_delta_net() -> None:
    assert state_of(GATED, tensor_parallel_size=2) == 548_864  # Qwen3-Next, kv_memory.md §3.4
    assert state_of(replace(GATED, state_value_bytes=4)) == 8192 * 3 * 2 + 32 * 128 * 128 * 4
    assert state_of(GATED, speculative_tokens=2) - state_of(GATED) == 8192 * 2 * 2  # a draft widens the window


def test_state_of_mamba_2_repeats_groups_that_do_not_divide() -> None:
    assert state_of(MAMBA) == (7680 + 8 * 256) * 3 * 2 + 96 * 80 * 128 * 2
    one_group = replace(MAMBA, conv_groups=1)
    assert state_of(one_group, tensor_parallel_size=4) == (7680 + 4 * 256) // 4 * 3 * 2 + 96 * 80 * 128 // 4 * 2


def test_a_silent_config_takes_the_engines_state_dtype() -> None:
    conv = 8192 * 3 * 2
    assert state_of(GATED) == conv + 32 * 128 * 128 * 2
    assert state_of(GATED, version=(0, 5), name="sglang") == conv + 32 * 128 * 128 * 4
    assert state_of(GATED, version=(0, 19), family="nemotron_h") == conv + 32 * 128 * 128 * 2
    assert state_of(GATED, version=(0, 20), family="nemotron_h") == conv + 32 * 128 * 128 * 4


@pytest.mark.parametrize(
    ("layers", "stages", "drafters", "expected"),
    [
        (61, 4, 0, [15, 15, 16, 15]),
        (61, 4, 1, [15, 15, 16, 16]),
        (8, 3, 0, [3, 3, 2]),
        (8, 1, 2, [10]),
        (10, 4, 0, [2, 3, 3, 2]),
    ],
)
def test_pipeline_stages_give_the_rest_to_the_ones_before_the_last(
    layers: int, stages: int, drafters: int, expected: list[int]
) -> None:
    caches = ((AttentionLayer(8, 128, 128),),) * (layers + drafters)
    assert [len(stage) for stage in pipeline_stages(caches, layers, stages)] == expected


@pytest.mark.parametrize(
    ("changes", "engine", "words"),
    [
        ({}, {"tensor_parallel_size": 3}, "32 attention heads do not divide over TP 3"),
        ({"num_attention_heads": 40, "num_key_value_heads": 10}, {"tensor_parallel_size": 4}, "10 KV heads neither"),
        ({}, {"pipeline_parallel_size": 9}, "8 layers do not fill 9"),
        ({}, {"tensor_parallel_size": 8, "decode_context_parallel_size": 2}, "DCP 2 must divide the 1 copies"),
        ({}, {"tensor_parallel_size": 16, "decode_context_parallel_size": 4}, "DCP 4 must divide the 2 copies"),
    ],
)
def test_parallelism_that_does_not_divide(changes: dict[str, Any], engine: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_parallelism(shape(**changes), Engine(**engine))


def test_decode_context_parallelism_over_copies() -> None:
    check_parallelism(shape(), Engine(tensor_parallel_size=16, decode_context_parallel_size=2))
    check_parallelism(shape(**SPARSE), Engine(tensor_parallel_size=8, decode_context_parallel_size=8))


def test_unknown_dtypes_and_dtypes_of_other_models() -> None:
    with pytest.raises(CatalogError, match=r"unknown KV cache dtype 'fp7'.*known are auto, bf16"):
        kv_format(shape(), Engine(kv_cache_dtype="fp7"), VERSION)
    with pytest.raises(ConfigError, match="for MLA models only"):
        kv_format(shape(), Engine(kv_cache_dtype="fp8_ds_mla"), VERSION)
