"""Parameters of what works on one token alone: dense feed-forward layers, routers, routed and shared experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.planner.model.config_reading import HIDDEN, needed, text, value_of, whole, words
from transforms.planner.model.layer_pattern import NONE
from transforms.planner.model.parts import ExpertMatrices, Part

if TYPE_CHECKING:
    from transforms.planner.model.config_reading import Config

_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "ffn_config.moe_num_experts")
_TOP = (
    *("num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", "top_k_experts", "num_experts_per_token"),
    "ffn_config.moe_top_k",
)
_INNER = ("intermediate_size", "n_inner", "ffn_hidden_size", "block_ff_dim", "ffn_dim", "ffn_config.ffn_hidden_size")
_EXPERT_INNER = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_config.ffn_hidden_size")

# Two matrices (up, down) instead of three (gate, up, down): GELU or squared ReLU without a gate.
_UNGATED_GPT = ("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "opt", "starcoder2")
_UNGATED = frozenset((*_UNGATED_GPT, "nemotron", "nemotron_h", "persimmon", "phi"))
# Public configs of these leave the inner size to the class: so many times the hidden one (transformers, llm-foundry).
_WIDENED = dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_bigcode", "gptj", "mpt"), 4)
# Experts work beside the dense feed-forward of the same layer.
_BESIDE = frozenset({"gemma4", "gemma4_text", "arctic"})
# Public configs that leave the number of experts a token takes to the class default (transformers).
_TOP_BY_FAMILY = {"gemma4": 8, "gemma4_text": 8}


def feed_forward_parts(config: Config, family: str, kind: str, index: int) -> tuple[Part, ...]:
    """Parts of layer `index`'s feed-forward; none in a layer that a hybrid pattern gives to mixing alone."""
    pattern = text(config, "hybrid_override_pattern")
    if pattern is not None and kind != NONE:
        return ()
    hidden = needed(config, *HIDDEN)
    matrices = 2 if family in _UNGATED else 3
    experts = whole(config, *_EXPERTS) or 0
    is_sparse = experts > 0 and (pattern[index] == "E" if pattern is not None else _is_sparse(config, index))
    parts: tuple[Part, ...] = ()
    if not is_sparse or family in _BESIDE:
        modules = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        parts += (Part("feed_forward", matrices * hidden * _dense_inner(config, family), modules=modules),)
    return parts + (_sparse(config, family, hidden, matrices, experts) if is_sparse else ())


def inner_sizes(config: Config, family: str) -> tuple[int, int, int]:
    """Inner sizes of the widest dense or shared layer and of one routed expert, and the experts a token takes."""
    experts = whole(config, *_EXPERTS) or 0
    if not experts:
        return _dense_inner(config, family), 0, 0
    inner = needed(config, *_EXPERT_INNER)
    has_dense = family in _BESIDE or not _is_sparse(config, 0)
    dense = max(_shared_inner(config, family, inner), _dense_inner(config, family) if has_dense else 0)
    return dense, inner, whole(config, *_TOP) or _TOP_BY_FAMILY.get(family) or needed(config, *_TOP)


def _sparse(config: Config, family: str, hidden: int, matrices: int, experts: int) -> tuple[Part, ...]:
    inner = needed(config, *_EXPERT_INNER)
    routed = Part(
        "routed_experts",
        experts * matrices * hidden * inner,
        experts=ExpertMatrices(experts, matrices, hidden, inner),
        modules=("mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj"),
        active_share=(whole(config, *_TOP) or _TOP_BY_FAMILY.get(family) or needed(config, *_TOP)) / experts,
    )
    bias = experts * (2 * inner + hidden) if family == "gpt_oss" else 0
    router = Part("router", hidden * experts + experts, split=1, is_linear=False)
    parts = (router, routed) + (
        (Part("expert_bias", bias, is_linear=False, active_share=routed.active_share),) if bias else ()
    )
    shared = _shared_inner(config, family, inner)
    if not shared:
        return parts
    name = "mlp.shared_expert" if whole(config, "shared_expert_intermediate_size") else "mlp.shared_experts"
    modules = tuple(f"{name}.{matrix}_proj" for matrix in ("gate", "up", "down"))
    return (*parts, Part("shared_experts", matrices * hidden * shared, modules=modules))


def _shared_inner(config: Config, family: str, inner: int) -> int:
    """Inner size of all shared experts of a layer together, 0 where there are none."""
    if whole_size := whole(config, "shared_expert_intermediate_size", "shared_intermediate_size"):
        return whole_size
    if family in ("llama4", "llama4_text"):
        return inner
    count = whole(config, "n_shared_experts", "moe_num_shared_experts", "num_shared_experts") or 0
    return count * (whole(config, "moe_shared_expert_intermediate_size") or inner)


def _dense_inner(config: Config, family: str) -> int:
    """Inner size of a dense layer; Llama 4 has its own, LFM2 takes two thirds, Qwen 1 half of the configured one."""
    inner = whole(config, "intermediate_size_mlp", *_INNER)
    if not inner:
        times = whole(config, "expansion_ratio") or _WIDENED.get(family)
        return times * needed(config, *HIDDEN) if times else needed(config, *_INNER)
    if family == "qwen":
        return inner // 2  # gate and up share it (modeling_qwen.py)
    if value_of(config, "block_auto_adjust_ff_dim"):
        step = needed(config, "block_multiple_of")
        inner = _up(2 * inner // 3, step)
    return inner


def _is_sparse(config: Config, index: int) -> bool:
    """Whether layer `index` has experts, by whichever rule the config states; without one all layers do."""
    if index < (whole(config, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index") or 0):
        return False
    if index in (words(config, "mlp_only_layers") or ()):
        return False
    marks = value_of(config, "moe_layer_freq")
    if isinstance(marks, list):
        return index < len(marks) and bool(marks[index])
    period = whole(config, "expert_layer_period")
    if period:
        return index % period == (whole(config, "expert_layer_offset") or 0)
    step = whole(config, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or 1
    return (index + 1) % step == 0


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
