"""Names of the architectures whose attention we know, and what their configs leave to the family's default."""

from __future__ import annotations

from transforms.errors import CatalogError, nearest

# Every layer holds K and V of its KV heads; windows, chunks and dims come from the config's own keys.
_ATTENTION = """
afmoe aimv2 apertus apriel arcee arctic aria aya_vision baichuan bailing_moe bailing_moe_v2 bloom chameleon chatglm
cohere cohere2 cohere2_vision command_r cwm dbrx dots1 ernie4_5 ernie4_5_moe ernie4_5_moe_vl ernie4_5_vl_moe exaone
exaone4 exaone_moe falcon fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_text glm glm4
glm4_moe glm4v glm4v_moe glm4v_text glm4v_moe_text glm_ocr gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe
granitemoeshared grok1 grok2 helium hunyuan hunyuan_v1_dense hunyuan_v1_moe hyperclovax_vlm idefics3 internlm internlm2
internlm3 internvl internvl_chat iquestcoder jais keye_vl kormo lfm llama llama4 llama4_text llava llava_next
llava_onevision mimo mimo_v2 mimo_v2_flash minicpm minicpmo minicpmv minimax_m2 ministral ministral3 mistral mistral3
mixtral molmo mpt nanochat nemotron olmo olmo2 olmo3 olmoe opt orion ovis ovis2 paligemma persimmon phi phi3 phi3_v
phi4_multimodal phi4mm phimoe pixtral qwen qwen2 qwen2_5_omni qwen2_5_omni_text qwen2_5_omni_thinker qwen2_5_vl
qwen2_5_vl_text qwen2_audio qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_moe qwen3_omni_moe qwen3_omni_moe_text
qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text seed_oss skywork_chat smollm3 smolvlm solar
stablelm starcoder2 step3p5 teleflm voxtral xverse yi
"""

# One latent vector per token and layer (kv_lora_rank), with or without a sparse-attention indexer.
_LATENT = """
deepseek_ocr deepseek_v2 deepseek_v3 deepseek_v32 deepseek_vl_v2 glm4_moe_lite glm_moe_dsa kimi_k2 kimi_k25 kimi_vl
longcat_flash pangu_ultra_moe
"""

# Layers with a state of fixed size beside layers with attention.
_HYBRID = """
bamba falcon_h1 granitemoehybrid jamba kimi_linear lfm2 lfm2_moe minimax minimax_m1 minimax_text_01 nemotron_h
nemotron_h_nano_omni nemotron_h_nano_vl qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_next
"""

KNOWN = frozenset(f"{_ATTENTION} {_LATENT} {_HYBRID}".split())
_SQUASHED = {name.replace("_", ""): name for name in KNOWN}
_ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ForCausalLMNextN", "ChatModel", "Model")

# Attention blocks inside one transformer layer, where it is not one (vLLM longcat_flash.py).
CACHES_PER_LAYER = {"longcat_flash": 2}

# Drafter layers in these families' weights where the config does not count them (vLLM config/speculative.py).
OWN_DRAFTER_LAYERS = {"qwen3_next": 1, "qwen3_5": 1, "qwen3_5_text": 1, "qwen3_5_moe": 1, "qwen3_5_moe_text": 1}

# Public configs of these leave the pattern to the class default (transformers configuration_<family>.py):
# one full-attention layer closes every group of so many; the rest have the window or the chunk.
FULL_EVERY_LAYERS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gemma3n": 5,
    "gemma3n_text": 5,
    "gemma4": 6,
    "gemma4_text": 6,
    "cohere2": 4,
    "cohere2_vision": 4,
    "exaone4": 4,
    "exaone_moe": 4,
    "gpt_oss": 2,
    "olmo3": 4,
    "llama4": 4,
    "llama4_text": 4,
    "qwen3_5": 4,
    "qwen3_5_moe": 4,
    "qwen3_5_moe_text": 4,
    "qwen3_5_text": 4,
    "qwen3_next": 4,
}

# What public configs leave to their class (transformers configuration_<family>.py), by model_type:
# google/gemma-3-12b-it names no head_dim, gemma-3-4b-it no heads either, pixtral-12b no query heads.
CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma": {"num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256_000},
    "gemma2": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256_000},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
    },
    "mistral": {"num_attention_heads": 32, "num_key_value_heads": 8},
    "mixtral": {"num_attention_heads": 32, "num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
    "qwen3_vl_text": {"head_dim": 128},
    "llama4_text": {"head_dim": 128},
    "gpt_oss": {"head_dim": 64},
}

# What the text towers of llava-1.5-7b, llava-v1.6-mistral-7b and Qwen2-Audio-7B leave to the class of the tower: nearly
# all of it. Taken inside another config only: a text model's own config names its sizes.
TOWER_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11_008,
        "vocab_size": 32_000,
        "max_position_embeddings": 2048,
    },
    "mistral": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14_336,
        "vocab_size": 32_000,
    },
    "qwen2": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 22_016,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
    },
}

_REFUSED = {
    "deepseek_v4": "DeepSeek-V4 (compressed, windowed and stateful layers) follows no rule that matches its logs",
    "deepseekv4": "DeepSeek-V4 (compressed, windowed and stateful layers) follows no rule that matches its logs",
}


def family_of(model_type: str, architecture: str, where: str) -> str:
    """Known family name of a config's `model_type`, else of its architecture; CatalogError lists what is known."""
    for word in (model_type, _stem(architecture)):
        squashed = word.lower().replace("_", "").replace("-", "")
        if squashed in _REFUSED:
            raise CatalogError(f"{where}: {_REFUSED[squashed]}; take the engine's own start-up log instead")
        if squashed in _SQUASHED:
            return _SQUASHED[squashed]
    word = model_type or architecture
    raise CatalogError(
        f"{where}: unknown architecture '{word}'{nearest(word, KNOWN)}; known are {', '.join(sorted(KNOWN))}"
    )


def _stem(architecture: str) -> str:
    for ending in _ENDINGS:
        if architecture.endswith(ending):
            return architecture.removesuffix(ending)
    return architecture
