"""A config.json becomes the caches of its layers: kinds, order, dims, sharing, states, drafters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from transforms.errors import CatalogError, ConfigError
from transforms.planner.model.layer_state import StateLayer
from transforms.planner.model.model_shape import AttentionLayer, IndexerLayer, LatentLayer, ModelShape, model_shape

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}
MAMBA_2 = {"mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4}


def shape(**changes: Any) -> ModelShape:
    return model_shape(LLAMA | changes, "config.json")


def kinds(found: ModelShape) -> str:
    """One letter a layer: F full, W window, C chunk, S state, M latent, I with indexer, B both, - nothing."""
    letters = []
    for caches in found.layers:
        words = []
        for cache in caches:
            if isinstance(cache, AttentionLayer):
                words.append("W" if cache.window_tokens else "C" if cache.chunk_tokens else "F")
            else:
                words.append({LatentLayer: "M", IndexerLayer: "I", StateLayer: "S"}[type(cache)])
        letters.append({"FS": "B", "MI": "I"}.get("".join(words), "".join(words) or "-"))
    return "".join(letters)


def test_grouped_heads_and_the_derived_head_dim() -> None:
    assert shape().layers == ((AttentionLayer(8, 128, 128),),) * 32


def test_without_kv_heads_every_query_head_has_its_own() -> None:
    assert shape(num_key_value_heads=None).layers[0] == (AttentionLayer(32, 128, 128),)


def test_multi_query_has_one_kv_head() -> None:
    falcon = {"model_type": "falcon", "num_hidden_layers": 2, "num_attention_heads": 71, "hidden_size": 4544}
    assert model_shape(falcon | {"multi_query": True}, "c").layers[0] == (AttentionLayer(1, 64, 64),)
    saved_again = falcon | {"multi_query": True, "num_kv_heads": 71, "new_decoder_architecture": False}
    assert model_shape(saved_again, "c").layers[0] == (AttentionLayer(1, 64, 64),)
    newer = {"multi_query": True, "num_kv_heads": 8, "new_decoder_architecture": True}
    assert model_shape(falcon | newer, "c").layers[0] == (AttentionLayer(8, 64, 64),)
    assert shape(multi_query_attention=False, multi_query_group_num=2, num_key_value_heads=None).layers[0] == (
        AttentionLayer(32, 128, 128),
    )


def test_a_silent_config_has_what_its_class_assumes() -> None:
    """google/gemma-3-12b-it names no head_dim (not 3,840 / 16), gemma-3-4b-it no heads, pixtral-12b no query heads."""
    gemma = {"model_type": "gemma3_text", "sliding_window": 1024, "num_hidden_layers": 6}
    larger = gemma | {"hidden_size": 3840, "num_attention_heads": 16, "num_key_value_heads": 8}
    for text, heads in ((larger, 8), (gemma | {"hidden_size": 2560}, 4)):
        found = model_shape({"model_type": "gemma3", "text_config": text}, "c")
        assert kinds(found) == "WWWWWF"
        assert found.layers[5] == (AttentionLayer(heads, 256, 256),)
    pixtral = {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "num_hidden_layers": 1}
    assert model_shape({"model_type": "llava", "text_config": pixtral}, "c").layers[0] == (AttentionLayer(8, 128, 128),)
    for tower, heads in (("llama", 32), ("mistral", 8), ("qwen2", 32)):
        silent = model_shape({"model_type": "llava", "text_config": {"model_type": tower, "vocab_size": 32064}}, "c")
        assert silent.layers == ((AttentionLayer(heads, 128, 128),),) * 32
    with pytest.raises(ConfigError, match="lacks 'num_hidden_layers'"):
        model_shape({"model_type": "llama", "vocab_size": 32064}, "c")
    assert shape(model_type="qwen3", hidden_size=1024).layers[0] == (AttentionLayer(8, 128, 128),)
    assert shape(model_type="mistral", num_key_value_heads=None, num_kv_heads=2).layers[0] == (
        AttentionLayer(2, 128, 128),
    )


@pytest.mark.parametrize("tower", ["text_config", "llm_config", "language_config"])
def test_the_text_tower_is_found_where_it_is_nested(tower: str) -> None:
    text = {key: value for key, value in LLAMA.items() if key != "model_type"}
    nested = {"model_type": "mistral3", "vision_config": {"num_hidden_layers": 24}, tower: text}
    assert model_shape(nested, "c").layers == shape().layers
    omni = {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": text}}
    assert model_shape(omni, "c").layers == shape().layers


def test_architecture_stands_in_for_a_missing_model_type() -> None:
    found = model_shape({**LLAMA, "model_type": None, "architectures": ["Qwen2_5_VLForConditionalGeneration"]}, "c")
    assert found.family == "qwen2_5_vl"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}, "WWWWWFWWWWWFWW"),
        ({"model_type": "gemma2", "sliding_window": 4096}, "WFWFWFWFWFWFWF"),
        ({"model_type": "mistral", "sliding_window": 4096}, "W" * 14),
        ({"model_type": "mistral", "sliding_window": None}, "F" * 14),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}, "F" * 14),
        ({"model_type": "qwen2", "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 12},
         "F" * 12 + "WW"),
        ({"model_type": "exaone4", "sliding_window": 4096, "sliding_window_pattern": "LLLG"}, "WWWFWWWFWWWFWW"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, "CCCFCCCFCCCFCC"),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 0] * 7}, "CFCFCFCFCFCFCF"),
        ({"model_type": "gpt_oss", "sliding_window": 128}, "WFWFWFWFWFWFWF"),
        ({"model_type": "gemma3n_text", "sliding_window": 512, "num_kv_shared_layers": 4}, "WWWWFWWWWF----"),
        ({"model_type": "hunyuan_v1_dense", "use_cla": True, "cla_share_factor": 2}, "F-F-F-F-F-F-F-"),
        ({"model_type": "bamba", "attn_layer_indices": [1, 5], **MAMBA_2}, "SFSSSFSSSSSSSS"),
        ({"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 7, **MAMBA_2}, "SFSFSFSFSFSFSF"),
        ({"model_type": "falcon_h1", "mamba_d_ssm": 3072, **MAMBA_2}, "B" * 14),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*E-M-M*E-M-", **MAMBA_2}, "S-SF--S-SF--S-"),
        ({"model_type": "lfm2", "conv_L_cache": 3, "full_attn_idxs": [2, 5]}, "SSFSSFSSSSSSSS"),
        ({"model_type": "jamba", "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_expand": 2, "mamba_d_state": 16,
          "mamba_d_conv": 4}, "SSSSFSSSSSSSFS"),
        ({"model_type": "minimax_text_01", "attn_type_list": [0, 0, 1] * 5}, "SSFSSFSSFSSFSS"),
        ({"model_type": "deepseek_v32", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
          "index_topk": 2048}, "I" * 14),
    ],
)  # fmt: skip
def test_the_pattern_of_layers(changes: dict[str, Any], expected: str) -> None:
    assert kinds(shape(num_hidden_layers=14, **changes)) == expected


def test_indexers_are_skipped_as_the_config_says() -> None:
    dsa = {"model_type": "glm_moe_dsa", "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}
    found = shape(num_hidden_layers=78, index_topk=2048, index_topk_freq=4, index_skip_topk_offset=3, **dsa)
    assert kinds(found).count("I") == 21
    assert kinds(found).startswith("IIIMMMIMMMI")
    assert found.drafter_layer == (LatentLayer(512, 64), IndexerLayer(128))
    named = shape(num_hidden_layers=4, index_topk=2048, index_topk_pattern="FSSF", **dsa)
    assert kinds(named) == "IMMI"


def test_dims_apart_by_kind_of_layer() -> None:
    gemma = shape(
        model_type="gemma4_text",
        head_dim=256,
        num_key_value_heads=16,
        global_head_dim=512,
        num_global_key_value_heads=4,
        sliding_window=1024,
    )
    assert gemma.layers[0] == (AttentionLayer(16, 256, 256, window_tokens=1024),)
    assert gemma.layers[5] == (AttentionLayer(4, 512, 512),)
    mimo = shape(
        model_type="mimo_v2_flash",
        num_hidden_layers=2,
        hybrid_layer_pattern=[0, 1],
        head_dim=192,
        v_head_dim=128,
        num_key_value_heads=4,
        swa_num_key_value_heads=8,
        swa_v_head_dim=64,
        sliding_window=128,
    )
    assert mimo.layers == ((AttentionLayer(4, 192, 128),), (AttentionLayer(8, 192, 64, window_tokens=128),))


def test_reduced_configs_only_count_their_layers() -> None:
    found = shape(model_type="lfm2", num_hidden_layers=16, n_attention_layers=6, n_conv_layers=10, conv_L_cache=3)
    assert Counter(kinds(found)) == {"S": 10, "F": 6}


def test_drafter_layers_of_the_model_itself() -> None:
    assert shape(num_nextn_predict_layers=1).own_drafter_layers == 1
    assert shape(model_type="qwen3_next").own_drafter_layers == 1
    assert shape().own_drafter_layers == 0


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"model_type": "rwkv7"}, CatalogError, ("unknown architecture 'rwkv7'", "known are", "llama")),
        ({"model_type": "lama"}, CatalogError, ("did you mean",)),
        ({"model_type": "deepseek_v4"}, CatalogError, ("DeepSeek-V4",)),
        ({"model_type": "t5"}, CatalogError, ("unknown architecture 't5'",)),
        ({"model_type": "whisper", "is_encoder_decoder": True}, CatalogError, ("'whisper' is an encoder-decoder",)),
        ({"layer_types": ["warp_attention"] * 32}, CatalogError, ("'warp_attention'", "sliding_attention")),
        ({"layer_types": ["full_attention"] * 3}, ConfigError, ("names 3 layers", "32")),
        ({"hybrid_override_pattern": "MX"}, CatalogError, ("'X'",)),
        ({"num_hidden_layers": None}, ConfigError, ("lacks 'num_hidden_layers'",)),
        ({"num_hidden_layers": "32"}, ConfigError, ("'num_hidden_layers'", "'32'")),
        ({"num_hidden_layers": 0}, ConfigError, ("above zero",)),
        ({"hidden_size": None}, ConfigError, ("lacks 'hidden_size'",)),
        ({"num_attention_heads": None, "num_key_value_heads": None}, ConfigError, ("lacks 'num_attention_heads'",)),
        ({"kv_lora_rank": 512}, ConfigError, ("lacks 'qk_rope_head_dim'",)),
        ({"layer_types": ["mamba"] * 32, "mamba_n_heads": 4}, ConfigError, ("lacks 'mamba_head_dim'",)),
        ({"layer_types": "full"}, ConfigError, ("'layer_types' must be a list",)),
        ({"model_type": None}, ConfigError, ("'model_type'", "'architectures'")),
    ],
)
def test_refusals_name_what_is_amiss(changes: dict[str, Any], error: type[Exception], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        shape(**changes)
    text = str(caught.value)
    assert text.startswith("config.json: ")
    assert "\n" not in text
    assert all(word in text for word in words), text
