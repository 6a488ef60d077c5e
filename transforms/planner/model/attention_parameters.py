"""Parameters of what mixes tokens: attention (also latent and indexed), delta nets, Mamba, short convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transforms.planner.model.config_reading import HEADS, HIDDEN, head_dim, kv_heads, needed, value_of, whole
from transforms.planner.model.layer_pattern import WINDOW
from transforms.planner.model.parts import Part

if TYPE_CHECKING:
    from transforms.planner.model.config_reading import Config

_ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_BIASED = frozenset(
    ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_audio", "gpt_oss")
)
_GATED = frozenset(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"))


def attention_parts(config: Config, family: str, kind: str) -> tuple[Part, ...]:
    """Parts of one attention layer: projections of queries and output, of K and V, biases."""
    if whole(config, "kv_lora_rank"):
        return _latent(config)
    hidden, heads = needed(config, *HIDDEN), needed(config, *HEADS)
    window = kind == WINDOW
    dim = head_dim(config, "swa_head_dim" if window else "global_head_dim")
    held = kv_heads(config, "swa_num_key_value_heads" if window else "num_global_key_value_heads")
    value_dim = whole(config, "v_head_dim") or dim
    gate = 2 if family in _GATED or value_of(config, "attn_output_gate") else 1
    is_key_value = bool(value_of(config, "attention_k_eq_v")) and not window
    wide = gate * heads * dim + heads * value_dim
    narrow = held * (dim if is_key_value else dim + value_dim)
    parts: tuple[Part, ...] = (
        Part("attention", hidden * wide, modules=(_ATTENTION[0], _ATTENTION[3])),
        Part("attention_kv", hidden * narrow, split=held, modules=_ATTENTION[1:3]),
    )
    if family in _BIASED or value_of(config, "attention_bias"):
        parts += (Part("attention_bias", gate * heads * dim + narrow, is_linear=False),)
    return parts


def _latent(config: Config) -> tuple[Part, ...]:
    """MLA: down-projections are whole on every rank, those of the heads divided."""
    hidden, heads = needed(config, *HIDDEN), needed(config, *HEADS)
    rank, rope = needed(config, "kv_lora_rank"), needed(config, "qk_rope_head_dim")
    query_dim, value_dim = needed(config, "qk_nope_head_dim") + rope, needed(config, "v_head_dim")
    query_rank = whole(config, "q_lora_rank")
    up = rank * heads * (query_dim - rope + value_dim)
    queries = (query_rank or hidden) * heads * query_dim
    down = hidden * (rank + rope) + hidden * (query_rank or 0)
    names = ("self_attn.q_b_proj", "self_attn.kv_b_proj", "self_attn.o_proj")
    return (
        Part("attention", queries + up + heads * value_dim * hidden, modules=names),
        Part("attention_latent", down, split=1, modules=("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa")),
        *_indexer(config, hidden, query_rank or hidden),
    )


def latent_copy(config: Config) -> int:
    """Values of the up-projection's second copy, which engines keep in 16 bits for decoding (vLLM mla W_UK, W_UV)."""
    rank = whole(config, "kv_lora_rank")
    if not rank:
        return 0
    return rank * needed(config, *HEADS) * (needed(config, "qk_nope_head_dim") + needed(config, "v_head_dim"))


def _indexer(config: Config, hidden: int, query_rank: int) -> tuple[Part, ...]:
    dim, heads = whole(config, "index_head_dim"), whole(config, "index_n_heads")
    if not dim or not heads:
        return ()
    weights = query_rank * heads * dim + hidden * dim + hidden * heads
    return (Part("indexer", weights, split=1, modules=("self_attn.indexer.wq_b", "self_attn.indexer.wk")),)


def state_parts(config: Config) -> tuple[Part, ...]:
    """Parts of a layer that keeps a state: delta nets, lightning attention, Mamba, short convolution."""
    hidden = needed(config, *HIDDEN)
    if value_of(config, "linear_num_value_heads") is not None:
        return _gated_delta_net(config, hidden)
    if value_of(config, "linear_attn_config") is not None:
        heads, dim = needed(config, "linear_attn_config.num_heads"), needed(config, "linear_attn_config.head_dim")
        wide = heads * dim
        linear = 4 * hidden * wide + 2 * (hidden * dim + dim * wide) + hidden * heads
        return _state(linear, 12 * wide + dim, "self_attn.o_proj")
    if taps := whole(config, "conv_L_cache", "L_cache"):
        return _state(4 * hidden * hidden, hidden * taps, "conv.out_proj")
    if value_of(config, "attn_type_list") is not None:
        heads = needed(config, *HEADS)
        wide = heads * head_dim(config)
        return _state(5 * hidden * wide, wide, "self_attn.out_proj")
    if whole(config, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads") is None:
        return _mamba1(config, hidden)
    return _mamba2(config, hidden)


def _state(linear: int, rest: int, module: str) -> tuple[Part, ...]:
    """Parts of a state layer; `module` is one of its matrices, which checkpoints quantise or leave together."""
    return (Part("state", linear, modules=(module,)), Part("state_rest", rest, is_linear=False))


def _gated_delta_net(config: Config, hidden: int) -> tuple[Part, ...]:
    keys = needed(config, "linear_num_key_heads") * needed(config, "linear_key_head_dim")
    heads = needed(config, "linear_num_value_heads")
    values = heads * needed(config, "linear_value_head_dim")
    conv = (2 * keys + values) * needed(config, "linear_conv_kernel_dim")
    rest = conv + 2 * heads + values // heads
    return _state(hidden * (2 * keys + 3 * values + 2 * heads), rest, "linear_attn.out_proj")


def _mamba1(config: Config, hidden: int) -> tuple[Part, ...]:
    inner = needed(config, "mamba_expand") * hidden
    state, rank = needed(config, "mamba_d_state"), whole(config, "mamba_dt_rank") or -(-hidden // 16)
    linear = 3 * hidden * inner + inner * (rank + 2 * state) + rank * inner
    return _state(linear, inner * (needed(config, "mamba_d_conv") + state + 3), "mamba.out_proj")


def _mamba2(config: Config, hidden: int) -> tuple[Part, ...]:
    heads = needed(config, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    inner = heads * needed(config, "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    groups = 2 * needed(config, "n_groups", "mamba_n_groups", "mamba_ngroups")
    groups *= needed(config, "ssm_state_size", "mamba_d_state")
    conv = (inner + groups) * (needed(config, "conv_kernel", "mamba_d_conv") + 1)
    module = "mixer.out_proj" if value_of(config, "ssm_state_size") is not None else "mamba.out_proj"
    return _state(hidden * (3 * inner + groups + heads), conv + 3 * heads + inner, module)
