"""vLLM's account by version: groups, blocks, printed tokens, concurrency, start-up check; numbers of kv_memory.md."""

from __future__ import annotations

from typing import Any

import pytest

from transforms.errors import CapacityError, CatalogError, ConfigError
from transforms.fleet import Engine
from transforms.planner.memory.kv_account import KvAccount, check_starts, default_prefix_caching, kv_account
from transforms.planner.memory.kv_versions import known_version, vllm_rule_span, vllm_rules
from transforms.planner.model.model_shape import ModelShape, model_shape

GIB = 1 << 30


def attention(model_type: str, layers: int, kv_heads: int, head_dim: int, **more: Any) -> ModelShape:
    config = {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 131072,
    }
    return model_shape(config | more, "config.json")


LLAMA_8B = attention("llama", 32, 8, 128)
GPT_OSS_20B = attention("gpt_oss", 24, 8, 64, sliding_window=128)
GEMMA_3_27B = attention("gemma3_text", 62, 16, 128, sliding_window=1024)
GEMMA_4_31B = attention(
    "gemma4_text", 60, 16, 256, sliding_window=1024, global_head_dim=512, num_global_key_value_heads=4
)
LLAMA_4_SCOUT = attention("llama4_text", 48, 8, 128, attention_chunk_size=8192, num_attention_heads=40)
GATED = {
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}  # fmt: skip
QWEN_NEXT = attention(
    "qwen3_next", 48, 2, 256, num_attention_heads=16, linear_num_value_heads=32, max_position_embeddings=262144, **GATED
)
QWEN_27B = attention(
    "qwen3_5", 64, 4, 256, num_attention_heads=24, linear_num_value_heads=48, mamba_ssm_dtype="float32", **GATED
)


def account(shape: ModelShape, available: float, version: str | None = "0.19.0", **engine: Any) -> KvAccount:
    return kv_account(shape, Engine(version=version, **engine), int(available))


def test_qwen3_next_to_the_block() -> None:
    found = account(
        QWEN_NEXT, 47_878_721_024, "0.11.2", tensor_parallel_size=2, enable_prefix_caching=False, max_model_len=262144
    )
    assert found.block_size_tokens == 544
    assert found.bytes_per_block_per_gpu == 6_684_672
    assert found.num_blocks == 7162
    assert found.reported_tokens == 973_760
    assert found.blocks_per_request == 485
    assert round(found.max_concurrency or 0, 2) == 14.77
    assert found.capacity_tokens == (7162 - 3) * 544
    assert found.bytes_per_token_per_gpu == 12 * 1024


def test_uniform_attention_at_24_gib() -> None:
    found = account(LLAMA_8B, 24 * GIB, max_model_len=32768)
    assert found.bytes_per_token_per_gpu == 131_072
    assert (found.num_blocks, found.reported_tokens, found.capacity_tokens) == (12_288, 196_608, 196_608)
    assert found.max_concurrency == 6.0
    assert found.held_bytes(8193) == 513 * 16 * 131_072
    assert 4 * found.held_bytes(32768) + 8 * found.held_bytes(8192) == found.capacity_bytes


def test_need_of_a_7b_at_118000_tokens() -> None:
    qwen_7b = attention("qwen2", 28, 4, 128)
    found = account(qwen_7b, 6.11 * GIB, "0.8.3", max_model_len=118_000)
    need = (found.blocks_per_request or 0) * found.bytes_per_block_per_gpu
    assert round(need / GIB, 2) == 6.30
    assert not found.starts
    assert found.largest_max_model_len == found.num_blocks * 16


def test_need_and_estimate_of_a_hybrid() -> None:
    settings = {"kv_cache_dtype": "fp8", "max_model_len": 204_800}
    block_bytes = account(QWEN_27B, 6 * GIB, "0.24", **settings).bytes_per_block_per_gpu
    found = account(QWEN_27B, 113.5 * block_bytes, "0.24", **settings)
    assert found.blocks_per_request == 137
    assert round(137 * block_bytes / GIB, 3) == 6.556
    assert (found.num_blocks, found.largest_max_model_len) == (113, (113 - 6) * 1568)


def test_windows_reserve_every_batch_in_flight_since_0_26() -> None:
    settings = {"max_num_batched_tokens": 2048, "max_model_len": 131_072}
    newer = account(GPT_OSS_20B, 4 * GIB, "0.26", **settings)
    need = (newer.blocks_per_request or 0) * newer.bytes_per_block_per_gpu
    assert round(need / GIB, 3) == 3.097
    older = account(GPT_OSS_20B, 4 * GIB, "0.25", **settings)
    assert (older.blocks_per_request, newer.blocks_per_request) == (8192 + 137, 8192 + 265)
    piped = account(GPT_OSS_20B, 4 * GIB, "0.26", pipeline_parallel_size=3, **settings)
    assert piped.blocks_per_request == 8192 + (127 + 3 * 2048 + 15) // 16 + 1
    alone = account(GPT_OSS_20B, 4 * GIB, "0.26", async_scheduling=False, **settings)
    assert alone.blocks_per_request == older.blocks_per_request


def test_gemma_3_is_padded_to_whole_groups() -> None:
    found = account(GEMMA_3_27B, 20 * GIB, "0.13")
    assert found.bytes_per_block_per_gpu == 10 * 16 * 16 * 256 * 2
    assert found.reported_tokens == found.num_blocks // 7 * 16
    assert [(g.name, g.max_blocks) for g in found.groups] == [("window 1024", 65), ("full", None)]


def test_gemma_4_gives_its_smaller_page_a_larger_block() -> None:
    block_bytes = 10 * 16 * 16 * 512 * 2
    found = account(GEMMA_4_31B, 20_480 * block_bytes, "0.20")
    assert (found.num_blocks, found.block_size_tokens) == (20_480, 16)
    assert found.reported_tokens == 20_480 // 6 * 16
    assert {g.name: g.block_tokens for g in found.groups} == {"window 1024": 16, "full": 32}


def test_pages_that_do_not_divide_are_refused_then_padded() -> None:
    odd = attention(
        "gemma4_text", 12, 3, 256, sliding_window=1024, global_head_dim=512, num_global_key_value_heads=1,
        num_attention_heads=12,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"0\.24 or newer"):
        account(odd, GIB, "0.23")
    found = account(odd, GIB, "0.24")
    assert found.bytes_per_block_per_gpu == 2 * 16 * 3 * 512 * 2
    assert {g.name: g.block_tokens for g in found.groups} == {"window 1024": 16, "full": 16}


def test_llama_4_with_and_without_the_hybrid_manager() -> None:
    settings = {"tensor_parallel_size": 8, "max_num_batched_tokens": 8192}
    on = account(LLAMA_4_SCOUT, 89.71 * GIB, "0.12", max_model_len=8_388_608,
                 disable_hybrid_kv_cache_manager=False, **settings)  # fmt: skip
    off = account(LLAMA_4_SCOUT, 89.71 * GIB, "0.12", max_model_len=5_242_880, **settings)
    assert round(on.max_concurrency or 0, 2) == 1.86
    assert round(off.max_concurrency or 0, 2) == 0.75
    assert abs(on.reported_tokens / off.reported_tokens - 1) < 1e-4
    assert len(off.groups) == 1
    since = account(LLAMA_4_SCOUT, 89.71 * GIB, "0.14", max_model_len=8_388_608, **settings)
    assert since.max_concurrency == on.max_concurrency


def test_ascend_and_the_flag_count_windows_in_full() -> None:
    flagged = account(GPT_OSS_20B, GIB, "0.19", disable_hybrid_kv_cache_manager=True)
    ascend = account(GPT_OSS_20B, GIB, "0.19", name="vllm-ascend", block_size=16)
    before = account(GPT_OSS_20B, GIB, "0.8")
    for found in (flagged, ascend, before):
        assert (found.num_blocks, len(found.groups)) == (GIB // (24 * 2048 * 16), 1)


def test_one_window_in_every_layer_keeps_its_window() -> None:
    mistral = attention("mistral", 32, 8, 128, sliding_window=4096)
    found = account(mistral, 10 * GIB, "0.19", max_model_len=32768)
    assert found.blocks_per_request == (4095 + 8192 + 15) // 16 + 1
    assert found.groups[0].max_blocks == 257
    assert found.largest_max_model_len == 131_072  # nothing grows: the model's own limit


def test_drafters_add_full_layers() -> None:
    plain = account(LLAMA_8B, 20 * GIB)
    eagle = account(LLAMA_8B, 20 * GIB, drafter_layers=1)
    assert eagle.bytes_per_token_per_gpu == plain.bytes_per_token_per_gpu // 32 * 33
    deepseek = attention("deepseek_v3", 61, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64, num_nextn_predict_layers=1)
    assert account(deepseek, GIB, speculative_tokens=1).bytes_per_token_per_gpu == 62 * 1152
    assert account(deepseek, GIB).bytes_per_token_per_gpu == 61 * 1152


@pytest.mark.parametrize(
    ("version", "groups", "layers"),
    [("0.11.2", 3, 12), ("0.12.0", 2, 13), ("0.33.0", 2, 13)],
)
def test_a_drafter_beside_windows_changes_the_groups(version: str, groups: int, layers: int) -> None:
    found = account(GPT_OSS_20B, 10 * GIB, version, drafter_layers=1, max_model_len=4096)
    assert found.bytes_per_block_per_gpu == layers * 16 * 2048
    assert sum(g.bytes_per_block for g in found.groups) == groups * found.bytes_per_block


def test_the_padding_factor_rose_in_0_18() -> None:
    config = {"layer_types": ["full_attention"] * 10 + ["sliding_attention"] * 13, "sliding_window": 128}
    shape = attention("olmo3", 23, 8, 64, **config)
    sizes = [account(shape, GIB, version).bytes_per_block_per_gpu // (16 * 2048) for version in ("0.17", "0.18")]
    assert sizes == [10, 13]


def test_the_printed_size_changed_in_0_21() -> None:
    settings = {"max_model_len": 262_144, "enable_prefix_caching": True, "tensor_parallel_size": 2}
    older = account(QWEN_NEXT, 40 * GIB, "0.20", **settings)
    newer = account(QWEN_NEXT, 40 * GIB, "0.21", **settings)
    assert older.reported_tokens == older.num_blocks // 4 * 544
    assert newer.reported_tokens == int((newer.max_concurrency or 0) * 262_144)
    assert newer.max_concurrency == older.max_concurrency


def test_draft_states_count_since_0_15() -> None:
    settings = {
        "speculative_tokens": 2,
        "max_model_len": 8192,
        "tensor_parallel_size": 2,
        "enable_prefix_caching": False,
    }
    blocks = [account(QWEN_NEXT, 20 * GIB, version, **settings) for version in ("0.14", "0.15")]
    full = -(-8192 // blocks[0].block_size_tokens)
    assert [b.blocks_per_request for b in blocks] == [full + 3, full + 3 * 3]


def test_decode_context_parallelism_multiplies_tokens() -> None:
    glm = attention(
        "glm_moe_dsa", 78, 64, 192, kv_lora_rank=512, qk_rope_head_dim=64, index_head_dim=128, index_topk=2048,
        index_topk_freq=4, index_skip_topk_offset=3, num_nextn_predict_layers=1, num_attention_heads=64,
    )  # fmt: skip
    found = account(
        glm, 1_810_000_000, "0.24", tensor_parallel_size=4, decode_context_parallel_size=4, kv_cache_dtype="fp8",
        speculative_tokens=1, max_model_len=131_072,
    )  # fmt: skip
    assert found.bytes_per_token_per_gpu == 79 * 656 + 22 * 132
    assert found.num_blocks * 64 * 4 == 132_096  # as its log printed; concurrency 1.01
    assert round(found.max_concurrency or 0, 2) == 1.01
    assert found.bytes_per_token == found.bytes_per_token_per_gpu


def test_pipeline_stages_take_the_fullest() -> None:
    one = account(LLAMA_8B, GIB)
    two = account(LLAMA_8B, GIB, pipeline_parallel_size=2)
    three = account(LLAMA_8B, GIB, pipeline_parallel_size=3)
    assert two.num_blocks == GIB // (one.bytes_per_block_per_gpu // 2)
    assert three.bytes_per_block_per_gpu == one.bytes_per_block_per_gpu // 32 * 11
    assert three.bytes_per_block == one.bytes_per_block
    assert (two.gpus, three.gpus) == (2, 3)


def test_replica_and_gpu_bytes() -> None:
    found = account(LLAMA_8B, 10 * GIB, tensor_parallel_size=16)
    assert found.bytes_per_token == 16 * found.bytes_per_token_per_gpu == 2 * 131_072  # each head twice
    assert found.held_bytes(1000) == 63 * 16 * found.bytes_per_token


def test_states_before_0_10_lay_outside_the_kv_cache() -> None:
    found = account(QWEN_NEXT, GIB, "0.9", tensor_parallel_size=2, max_model_len=1000)
    assert found.num_blocks == GIB // (12 * 1024 * 16)
    assert "V0" in found.rule


def test_the_null_block_is_kept_back_since_0_29() -> None:
    exact = 100 * 16 * 131_072
    assert account(LLAMA_8B, exact, "0.28", max_model_len=1600).starts
    newer = account(LLAMA_8B, exact, "0.29", max_model_len=1600)
    assert (newer.starts, newer.largest_max_model_len, newer.num_blocks) == (False, 1584, 100)


def test_a_length_that_does_not_fit_names_the_largest() -> None:
    found = account(LLAMA_8B, GIB, max_model_len=131_072)
    with pytest.raises(CapacityError, match=r"max_model_len 131072 does not fit.*largest that fits is 8192"):
        check_starts(found, "config.json on H100")
    check_starts(account(LLAMA_8B, GIB, max_model_len=8192), "config.json on H100")


def test_no_memory_and_no_manager() -> None:
    with pytest.raises(CapacityError, match="no memory is left"):
        account(LLAMA_8B, 0)
    with pytest.raises(ConfigError, match="without the hybrid KV cache manager"):
        account(QWEN_NEXT, GIB, disable_hybrid_kv_cache_manager=True)


@pytest.mark.parametrize("version", ["0.4", "0.34.0", "1.0", "2025-10", "latest", ""])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(CatalogError, match=r"from 0\.5 to 0\.33"):
        known_version("vllm", version)


def test_versions_are_read_and_spanned() -> None:
    assert known_version("vllm", "v0.23.1rc1") == (0, 23)
    assert known_version("vllm", None) == (0, 33)
    assert known_version("sglang", "0.5.8.post1") == (0, 5)
    assert vllm_rule_span(vllm_rules((0, 22))) == "0.21-0.23"
    assert vllm_rule_span(vllm_rules((0, 33))) == "0.33"
    with pytest.raises(CatalogError, match=r"did you mean 'vllm'\?.*sglang"):
        known_version("vlm", None)


def test_prefix_caching_of_models_with_states_by_version() -> None:
    assert [default_prefix_caching(QWEN_NEXT, "vllm", v) for v in ("0.11", "0.25", "0.26", None)] == [
        False,
        False,
        True,
        True,
    ]
    assert default_prefix_caching(LLAMA_8B, "vllm", "0.11")
    assert default_prefix_caching(QWEN_NEXT, "sglang", None)


def test_notes_say_what_was_not_followed() -> None:
    scheme = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    modelopt = {"quantization_config": {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}}
    for declared in (scheme, modelopt):
        assert "8-bit KV" in account(attention("llama", 2, 8, 128, **declared), GIB).notes[0]
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "index_topk": 2048}
    sparse = attention("deepseek_v32", 2, 8, 128, **latent)
    assert "fp8_ds_mla" in account(sparse, GIB, version="0.11.2").notes[0]
    assert account(sparse, GIB, version="0.12.0").notes == ()
    assert "no KV" in account(LLAMA_8B, GIB, speculative_tokens=3).notes[0]
    assert account(LLAMA_8B, GIB).notes == ()
