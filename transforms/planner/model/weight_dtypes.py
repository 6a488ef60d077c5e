"""The quantisation that a benchmark's one word for its weights (bf16, fp8, fp4, int4) stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transforms.errors import CatalogError, nearest
from transforms.planner.model.config_reading import read_config
from transforms.planner.model.model_families import family_of
from transforms.planner.model.parameters import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHT_DTYPES = ("bf16", "fp16", "fp8", "fp4", "int4")

_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
# NVIDIA's NVFP4 checkpoints of MoE models leave attention at 16 bits (hf_quant_config.json of nvidia/DeepSeek-R1-FP4).
_FP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
_ATTENTION = ["*self_attn*", "*linear_attn*"]
# Kimi-K2.5's int4 checkpoint: routed experts alone, a scale per 32 (quantization_config of moonshotai/Kimi-K2.5).
_OTHERS = ["*shared_experts*", "*mlp.gate_proj", "*mlp.up_proj", "*mlp.down_proj"]
_EXPERT_GROUP, _DENSE_GROUP = 32, 128


def with_weights(config: Mapping[str, Any], weights: str, where: str) -> Mapping[str, Any]:
    """`config` with the quantisation that `weights` means for it; unchanged where it declares its own.

    CatalogError on a dtype nobody described to us.
    """
    if weights not in WEIGHT_DTYPES:
        known = ", ".join(WEIGHT_DTYPES)
        raise CatalogError(f"weights '{weights}' are unknown{nearest(weights, WEIGHT_DTYPES)}; known are {known}")
    read = read_config(config, where)
    if read.quantization or weights in ("bf16", "fp16"):
        return config
    family = family_of(read.model_type, read.architecture, where)
    has_experts = parameters(config, where).routed_experts > 0
    return {**config, "quantization_config": _declared(weights, family, has_experts=has_experts)}


def kv_dtype(weights: str, engine: str, *, is_fp4_gpu: bool) -> str:
    """KV cache dtype where nobody recorded it: fp8 where public recipes set it, else the model's 16 bits. Assumed.

    They set it with fp4 weights, and with fp8 ones under TensorRT-LLM and on GPUs that multiply in fp4.
    """
    is_narrow = weights == "fp4" or (weights == "fp8" and (engine == "tensorrt-llm" or is_fp4_gpu))
    return "fp8" if is_narrow else "auto"


def _declared(weights: str, family: str, *, has_experts: bool) -> Mapping[str, Any]:
    if family == "gpt_oss":
        return {"quant_method": "mxfp4"}  # the only form its weights come in
    if weights == "fp8":
        return _FP8
    if weights == "fp4":
        return {**_FP4, "ignore": _ATTENTION if has_experts else []}
    scheme = {"num_bits": 4, "type": "int", "group_size": _EXPERT_GROUP if has_experts else _DENSE_GROUP}
    ignored = [*_ATTENTION, *_OTHERS] if has_experts else []
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": scheme}}, "ignore": ignored}
