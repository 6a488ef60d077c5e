"""The shared block of attention and states: the blocks and paddings that start-up logs print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.catalog import load_catalog
from transforms.fleet import Engine
from transforms.planner.memory.kv_layers import kv_format
from transforms.planner.memory.kv_page import ALIGN, ALL, NONE, block_tokens, state_mode, state_page
from transforms.planner.memory.kv_versions import vllm_rules
from transforms.planner.model.model_shape import ModelShape, model_shape

CATALOG = load_catalog(None)


def gated(layers: int, kv_heads: int, value_heads: int, **changes: Any) -> ModelShape:
    """A Qwen3-Next-like shape: every fourth layer full attention of 256 dims, the rest gated delta nets."""
    config = {
        "model_type": "qwen3_5",
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": kv_heads,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
    }
    return model_shape(config | changes, "config.json")


NEXT = gated(48, 2, 32, model_type="qwen3_next", mamba_ssm_dtype=None)
NEMOTRON_4B = model_shape(
    {
        "model_type": "nemotron_h", "num_hidden_layers": 42, "n_attention_layers": 4, "n_mamba_layers": 21,
        "num_key_value_heads": 8, "head_dim": 128, "mamba_num_heads": 96, "mamba_head_dim": 80, "n_groups": 8,
        "ssm_state_size": 128, "conv_kernel": 4,
    },
    "config.json",
)  # fmt: skip


def page(shape: ModelShape, version: tuple[int, int] = (0, 19), **engine: Any) -> tuple[int, float]:
    """Block in tokens and padding in percent, as the engine prints them."""
    settings = Engine(**{"enable_prefix_caching": False, **engine})
    found = state_page(shape, settings, vllm_rules(version), kv_format(shape, settings, version))
    return found.block_tokens, round((found.page_bytes / found.state_bytes - 1) * 100, 2)


@pytest.mark.parametrize(
    ("shape", "engine", "expected"),
    [
        (NEXT, {"tensor_parallel_size": 2}, (544, 1.49)),
        (gated(24, 2, 16), {}, (544, 2.64)),
        (gated(40, 2, 32), {}, (1056, 0.76)),
        (gated(40, 2, 32), {"kv_cache_dtype": "fp8"}, (2096, 0.0)),
        (gated(48, 2, 64), {"kv_cache_dtype": "fp8"}, (4176, 0.19)),
        (NEMOTRON_4B, {"kv_cache_dtype": "fp8"}, (992, 0.35)),
    ],
)
def test_blocks_and_paddings_of_logs(shape: ModelShape, engine: dict[str, Any], expected: tuple[int, float]) -> None:
    assert page(shape, **engine) == expected


@pytest.mark.parametrize(
    ("drafts", "dtype", "expected"),
    [(0, "auto", 784), (1, "auto", 800), (0, "fp8", 1568), (2, "fp8", 1600)],
)
def test_blocks_of_qwen36_27b_grow_with_drafts(drafts: int, dtype: str, expected: int) -> None:
    shape = gated(64, 4, 48, num_attention_heads=24)
    assert page(shape, speculative_tokens=drafts, kv_cache_dtype=dtype)[0] == expected


def test_a_drafted_122b() -> None:
    assert page(gated(48, 2, 64), speculative_tokens=1, kv_cache_dtype="fp8")[0] == 4192


def test_block_size_is_a_lower_bound() -> None:
    assert page(NEXT, tensor_parallel_size=2, block_size=64)[0] == 544
    assert page(NEXT, tensor_parallel_size=2, block_size=1024)[0] == 1024


def test_a_short_convolution_pads_to_one_kernel_block() -> None:
    lfm = model_shape(
        {
            "model_type": "lfm2", "num_hidden_layers": 16, "n_attention_layers": 6, "n_conv_layers": 10,
            "conv_L_cache": 3, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 2048,
        },
        "config.json",
    )  # fmt: skip
    assert page(lfm) == (16, 300.0)


def test_cached_states_align_to_the_scan_kernel() -> None:
    assert page(NEMOTRON_4B, kv_cache_dtype="fp8", enable_prefix_caching=True)[0] == 2048
    chunked = model_shape(
        {
            "model_type": "granitemoehybrid", "num_hidden_layers": 2, "layer_types": ["mamba", "attention"],
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "mamba_n_heads": 128,
            "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_chunk_size": 256,
        },
        "config.json",
    )  # fmt: skip
    assert page(chunked, enable_prefix_caching=True)[0] == 768
    assert page(chunked)[0] == 528


@pytest.mark.parametrize(
    ("version", "caching", "drafts", "gated_mode", "mamba_mode"),
    [
        ((0, 11), False, 0, NONE, NONE),
        ((0, 11), True, 0, NONE, ALL),  # gated delta nets could not cache prefixes yet
        ((0, 19), True, 0, ALIGN, ALL),
        ((0, 19), True, 1, ALIGN, ALIGN),
        ((0, 33), True, 0, ALIGN, ALIGN),
        ((0, 33), False, 2, NONE, NONE),
    ],
)
def test_how_states_are_kept_by_version(
    version: tuple[int, int], caching: bool, drafts: int, gated_mode: str, mamba_mode: str
) -> None:
    engine = Engine(enable_prefix_caching=caching, speculative_tokens=drafts)
    rules = vllm_rules(version)
    assert state_mode(NEXT, engine, rules) == gated_mode
    assert state_mode(NEMOTRON_4B, engine, rules) == mamba_mode


def test_blocks_without_states() -> None:
    llama = model_shape({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 64}, "c")
    latent = replace(llama, layers=model_shape(
        {"model_type": "deepseek_v3", "num_hidden_layers": 2, "num_attention_heads": 8, "kv_lora_rank": 512,
         "qk_rope_head_dim": 64}, "c").layers)  # fmt: skip

    def tokens(shape: ModelShape, **engine: Any) -> int:
        settings = Engine(**engine)
        return block_tokens(shape, settings, vllm_rules((0, 19)), kv_format(shape, settings, (0, 19)))

    assert tokens(llama) == 16
    assert tokens(latent) == 64
    assert tokens(llama, name="vllm-ascend") == 128
    assert tokens(latent, block_size=32) == 32


@pytest.mark.parametrize(
    ("minor", "asked", "expected"),
    [(9, None, 64), (10, None, 128), (14, None, 128), (14, 64, 128), (14, 256, 256), (15, None, 64), (15, 32, 32),
     (15, 16, 64), (33, 128, 128)],
)  # fmt: skip
def test_latents_on_data_centre_blackwell_take_the_block_of_their_kernel(
    minor: int, asked: int | None, expected: int
) -> None:
    config = CATALOG.model("deepseek-ai/DeepSeek-V3").config
    latent, sparse = model_shape(config, "c"), model_shape(CATALOG.model("deepseek-ai/DeepSeek-V3.2").config, "c")
    settings, version = Engine(block_size=asked), (0, minor)
    kv = kv_format(latent, settings, version, is_data_centre_blackwell=True)
    assert block_tokens(latent, settings, vllm_rules(version), kv) == expected
    assert block_tokens(sparse, settings, vllm_rules(version), kv) == (asked or 64)


@pytest.mark.parametrize(("minor", "is_blackwell", "block"), [(19, False, 2096), (19, True, 2112), (10, True, 2096)])
def test_heads_of_256_align_to_32_tokens_on_data_centre_blackwell(minor: int, is_blackwell: bool, block: int) -> None:
    shape = gated(40, 2, 32)
    settings, version = Engine(enable_prefix_caching=False, kv_cache_dtype="fp8"), (0, minor)
    kv = kv_format(shape, settings, version, is_data_centre_blackwell=is_blackwell)
    assert state_page(shape, settings, vllm_rules(version), kv).block_tokens == block
