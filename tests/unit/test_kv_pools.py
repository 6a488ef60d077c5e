"""The accounts of SGLang and TensorRT-LLM: pages, windowed pool, state slots, blocks; numbers of kv_memory.md."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.errors import CapacityError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import KvAccount, kv_account
from transforms.planner.model.model_shape import ModelShape, model_shape

GIB, MIB = 1 << 30, 1 << 20


def shape(model_type: str, layers: int, kv_heads: int, head_dim: int, **more: Any) -> ModelShape:
    config = {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
    }
    return model_shape(config | more, "config.json")


GEMMA_4_26B = shape(
    "gemma4_text", 30, 8, 256, sliding_window=1024, global_head_dim=512, num_global_key_value_heads=2
)  # fmt: skip
QWEN_9B = shape(
    "qwen3_5", 32, 4, 256, num_attention_heads=16, linear_num_key_heads=16, linear_num_value_heads=32,
    linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
)  # fmt: skip
LLAMA_8B = shape("llama", 32, 8, 128, max_position_embeddings=131072)
SPARSE = shape("deepseek_v32", 61, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128, index_topk=2048)


def sglang(model: ModelShape, available: float, *, holds_states: bool = False, **engine: Any) -> KvAccount:
    return kv_account(model, Engine(name="sglang", **engine), int(available), holds_states=holds_states)


def test_tokens_fill_whole_pages() -> None:
    assert sglang(LLAMA_8B, GIB).reported_tokens == 8192
    found = sglang(LLAMA_8B, GIB + 131_072 * 63, block_size=64)
    assert (found.reported_tokens, found.block_size_tokens, found.num_blocks) == (8192, 64, 128)
    assert sglang(SPARSE, GIB, kv_cache_dtype="fp8_e4m3").block_size_tokens == 64
    assert sglang(SPARSE, GIB, kv_cache_dtype="fp8_e4m3").bytes_per_token_per_gpu == 48_068


def test_windows_share_a_smaller_pool() -> None:
    cell = 5 * 4096 + 0.8 * 25 * 8192
    found = sglang(GEMMA_4_26B, 213_761 * cell, max_model_len=262_144)
    assert found.reported_tokens == 213_761  # 36.69 GiB in its log
    assert found.capacity_tokens == int(0.8 * 213_761)
    assert [(g.name, g.max_blocks) for g in found.groups] == [("full", None), ("window 1024", 1024)]
    assert not found.starts
    older = sglang(GEMMA_4_26B, GIB, version="0.4.0")
    assert older.reported_tokens == GIB // (5 * 4096 + 25 * 8192)


def test_a_window_in_every_layer_is_one_pool() -> None:
    mistral = shape("mistral", 32, 8, 128, sliding_window=4096)
    assert sglang(mistral, GIB).reported_tokens == 8192


def test_states_take_slots_of_a_gpu() -> None:
    conv, state = 4096 * 3 * 2, 16 * 128 * 128 * 4
    request = 24 * (conv + state)
    rest = 10 * GIB
    found = sglang(QWEN_9B, rest, holds_states=True, tensor_parallel_size=2, max_model_len=1000)
    slots = int((rest * 0.9 / 1.9 - request) / request)
    assert 24 * state == 24 * MIB  # kv_memory.md §3.5
    assert found.reported_tokens == (rest - (slots + 1) * request) // (8 * 2048)
    assert found.max_concurrency == slots  # fewer than the tokens would allow
    assert found.state_pool_bytes == slots * request * 2
    printed = sglang(QWEN_9B, 5 * GIB, tensor_parallel_size=2)
    assert printed.reported_tokens == 327_680


def test_186_slots_of_qwen_9b() -> None:
    request = 24 * (4096 * 3 * 2 + 16 * 128 * 128 * 4)
    rest = int((186.5 * request + request) * 1.9 / 0.9)
    found = sglang(QWEN_9B, rest, holds_states=True, tensor_parallel_size=2, max_model_len=1)
    assert found.max_concurrency == 186
    assert round(187 * 24 * MIB / GIB, 2) == 4.38  # as its log printed


def test_drafts_take_copies_of_states_from_the_slots_share() -> None:
    """SGLang kv_cache_configurator.py: slots × (1 + D/3) states are the share, min(requests, slots/3) × D copies."""
    request, rest = 24 * (4096 * 3 * 2 + 16 * 128 * 128 * 4), 20 * GIB
    settings = {"tensor_parallel_size": 2, "max_model_len": 1000, "speculative_tokens": 3, "max_num_seqs": 100}
    found = sglang(QWEN_9B, rest, holds_states=True, **settings)
    slots = int(rest * 0.9 / 1.9 // (request * (1 + 4 / 3)))
    copies = slots // 3 * 4
    assert 10 < slots // 3 <= 100
    assert f"{slots} state slots and {copies} copies for drafts" in found.rule
    assert found.reported_tokens == (rest - (slots + 1 + copies) * request) // (9 * 2048)
    fewer = sglang(QWEN_9B, rest, holds_states=True, **settings | {"max_num_seqs": 2})
    assert "and 8 copies" in fewer.rule
    uncached = sglang(QWEN_9B, rest, holds_states=True, enable_prefix_caching=False, **settings)
    assert uncached.state_pool_bytes < found.state_pool_bytes, "a request has one slot alone then, and more copies"
    assert sglang(QWEN_9B, rest, **settings).reported_tokens == rest // (9 * 2048)


def test_the_stage_with_the_largest_cell_limits_the_tokens() -> None:
    """Five layers on each stage; windowed ones cost 0.8 of the full one, which is on the second."""
    found = sglang(shape("gemma3_text", 10, 1, 64, sliding_window=128), GIB, pipeline_parallel_size=2)
    assert found.reported_tokens == int(GIB // ((4 * 0.8 + 1) * 256))
    assert found.capacity_bytes <= 2 * GIB


def test_no_room_for_one_state() -> None:
    with pytest.raises(CapacityError, match="hold no state"):
        sglang(QWEN_9B, 10 * MIB, holds_states=True)


@pytest.mark.parametrize(
    ("version", "block_size", "expected"),
    [("0.17", None, 64), ("1.1", None, 32), (None, None, 32), ("1.0", 128, 128)],
)
def test_tensorrt_llm_counts_whole_blocks(version: str | None, block_size: int | None, expected: int) -> None:
    engine = Engine(
        name="tensorrt-llm", version=version, block_size=block_size, kv_cache_dtype="fp8", max_model_len=9000
    )
    found = kv_account(LLAMA_8B, engine, 16 * GIB + 100_000)
    assert found.block_size_tokens == expected
    assert found.reported_tokens == 16 * GIB // 65_536
    assert found.max_concurrency == found.reported_tokens / 9000


def test_pipeline_stages_share_the_layers() -> None:
    one, two = sglang(LLAMA_8B, GIB), sglang(LLAMA_8B, GIB, pipeline_parallel_size=2)
    assert two.reported_tokens == 2 * one.reported_tokens
    assert two.capacity_bytes == 2 * GIB
    engine = Engine(name="tensorrt-llm", pipeline_parallel_size=2)
    assert kv_account(LLAMA_8B, engine, GIB).reported_tokens == 2 * one.reported_tokens
