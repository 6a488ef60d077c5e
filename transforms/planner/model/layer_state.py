"""States of fixed size: gated delta net, Kimi delta attention, Mamba 1 and 2, lightning attention, short conv."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.planner.model.config_reading import HEADS, HIDDEN, Config, head_dim, needed, value_of, whole

_WIDE, _NARROW = 4, 2  # bytes of a float32 and of a 16-bit state value
_CHUNK_TOKENS = 2048  # vLLM's stand-in where the config names no chunk (config/model.py get_mamba_chunk_size)
MAMBA_1, MAMBA_2 = "Mamba-1", "Mamba-2"
CONV_VALUE_BYTES = 2  # the convolution window keeps activations, in the model's 16 bits (vLLM mamba_utils)


@dataclass(frozen=True)
class StateLayer:
    """A request's state in one layer: `conv_channels` × `conv_taps` values, and `state_elements` values beside them.

    Mamba-2 has `conv_group_channels` more channels in each of `conv_groups` groups, of which every rank needs one.
    """

    kind: str
    conv_channels: int
    conv_taps: int
    state_elements: int
    state_value_bytes: int | None
    """None where the config is silent: then the engine's default for the family counts."""
    conv_groups: int = 0
    conv_group_channels: int = 0
    chunk_tokens: int | None = None
    """Tokens the scan kernel takes at once, which block boundaries respect when whole states are cached."""


def state_layer(config: Config) -> StateLayer:
    """State that a layer without full attention keeps per request; ConfigError names the field that lacks."""
    if value_of(config, "linear_num_value_heads") is not None:
        return _gated_delta_net(config)
    if value_of(config, "linear_attn_config") is not None:
        return _kimi_delta(config)
    if whole(config, "conv_L_cache", "L_cache"):
        taps = needed(config, "conv_L_cache", "L_cache") - 1
        return StateLayer("short convolution", needed(config, "conv_dim", *HIDDEN), taps, 0, _NARROW)
    if value_of(config, "attn_type_list") is not None:
        heads = needed(config, *HEADS)
        dim = head_dim(config)
        return StateLayer("lightning attention", 0, 0, heads * dim * dim, _NARROW)
    if whole(config, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads") is None:
        inner = needed(config, "mamba_expand") * needed(config, *HIDDEN)
        elements = inner * needed(config, "mamba_d_state")
        taps = needed(config, "mamba_d_conv") - 1
        return StateLayer(MAMBA_1, inner, taps, elements, _value_bytes(config), chunk_tokens=_chunk_tokens(config))
    return _mamba2(config)


def _gated_delta_net(config: Config) -> StateLayer:
    key_heads, value_heads = needed(config, "linear_num_key_heads"), needed(config, "linear_num_value_heads")
    key_dim, value_dim = needed(config, "linear_key_head_dim"), needed(config, "linear_value_head_dim")
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    taps = needed(config, "linear_conv_kernel_dim") - 1
    elements = value_heads * key_dim * value_dim
    return StateLayer("gated delta net", channels, taps, elements, _value_bytes(config))


def _kimi_delta(config: Config) -> StateLayer:
    heads, dim = needed(config, "linear_attn_config.num_heads"), needed(config, "linear_attn_config.head_dim")
    taps = needed(config, "linear_attn_config.short_conv_kernel_size") - 1
    return StateLayer("Kimi delta attention", 3 * heads * dim, taps, heads * dim * dim, _WIDE)


def _mamba2(config: Config) -> StateLayer:
    heads = needed(config, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    if value_of(config, "mamba_d_head") == "auto":  # Bamba, Granite-4: the heads share the widened hidden state
        dim = needed(config, "mamba_expand") * needed(config, *HIDDEN) // heads
    else:
        dim = needed(config, "mamba_head_dim", "mamba_d_head", "mamba_headdim")
    state = needed(config, "ssm_state_size", "mamba_d_state")
    return StateLayer(
        MAMBA_2,
        conv_channels=heads * dim,
        conv_taps=needed(config, "conv_kernel", "mamba_d_conv") - 1,
        state_elements=heads * dim * state,
        state_value_bytes=_value_bytes(config),
        conv_groups=needed(config, "n_groups", "mamba_n_groups", "mamba_ngroups"),
        conv_group_channels=2 * state,
        chunk_tokens=_chunk_tokens(config),
    )


def _value_bytes(config: Config) -> int | None:
    dtype = value_of(config, "mamba_ssm_dtype") or value_of(config, "mamba_ssm_cache_dtype")
    if dtype is None:
        return None
    return _WIDE if dtype == "float32" else _NARROW


def _chunk_tokens(config: Config) -> int:
    return whole(config, "mamba_chunk_size", "chunk_size") or _CHUNK_TOKENS
